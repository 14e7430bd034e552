"""The names of TVM's package tvm_ffi that its tutorials use.

Once relaxpy is imported, `import tvm_ffi` is this module, unless the package is installed.
"""

from relaxpy.exec.api.executable import Executable as Module
from relaxpy.exec.runtime.registry import (
    get_global_func as get_global_func,
    register_func as register_global_func,
)
from relaxpy.exec.runtime.tensors import from_dlpack as from_dlpack
from relaxpy.exec.runtime.values import ShapeTuple as Shape
from relaxpy.ir.container import Array as Array, Map as Map

__all__ = [
    "Array",
    "Map",
    "Module",
    "Shape",
    "from_dlpack",
    "get_global_func",
    "register_global_func",
]
