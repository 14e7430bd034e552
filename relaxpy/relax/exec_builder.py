"""The builder of executables from instructions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.exec_builder")
if TYPE_CHECKING:
    from relaxpy.tvm.exec_builder import ExecBuilder as ExecBuilder, VMFuncKind as VMFuncKind
