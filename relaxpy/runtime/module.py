"""Compiled programs, and how they are loaded."""

from relaxpy.exec.compile import load_executable, load_executable as load_module

__all__ = ["load_executable", "load_module"]
