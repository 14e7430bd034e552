"""Modules that also contain Python functions."""

from relaxpy.exec.python_module import BasePyModule as BasePyModule
