"""The builder of executables from instructions."""

from relaxpy.exec.exec_builder import ExecBuilder as ExecBuilder, VMFuncKind as VMFuncKind
