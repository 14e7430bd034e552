"""Modules that hold Python functions beside graph functions and kernels."""

from relaxpy.exec.python_module import BasePyModule

__all__ = ["BasePyModule"]
