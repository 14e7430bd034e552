"""Compiled programs, and how they are loaded."""

from relaxpy.exec.compile import load_executable, load_executable as load_module
from relaxpy.exec.executable import Executable as Module
from relaxpy.exec.stateful import BenchmarkResult

__all__ = ["BenchmarkResult", "Module", "load_executable", "load_module"]
