"""Compiled programs, and how they are loaded."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.module")
if TYPE_CHECKING:
    from relaxpy.exec.api.compile import load_executable as load_executable
    from relaxpy.exec.api.compile import load_executable as load_module
    from relaxpy.exec.api.executable import Executable as Module
    from relaxpy.exec.api.stateful import BenchmarkResult as BenchmarkResult
    __all__ = ['BenchmarkResult', 'Module', 'load_executable', 'load_module']
