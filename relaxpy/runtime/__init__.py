"""Run-time values, executables and packed functions."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.exec.compile import load_executable, load_executable as load_module
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind
from relaxpy.exec.runtime.params import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from relaxpy.exec.runtime.registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    register_func as register_global_func,
    remove_global_func,
)
from relaxpy.exec.runtime.tensor_cache import dump_tensor_cache, load_tensor_cache
from relaxpy.exec.runtime.tensors import convert, empty, from_dlpack, tensor
from relaxpy.exec.runtime.values import Category, Closure, ShapeTuple, category_of
from relaxpy.exec.vm import VirtualMachine
from relaxpy.ir.core.device import Device, cpu, cuda, device
from relaxpy.ir.core.dtype import DataType, DataTypeCode
from relaxpy.ir.core.node import Node as Object
from relaxpy.ir.core.tensor import Tensor, Tensor as NDArray
from relaxpy.ir.tir.ops import const
from relaxpy.runtime import container, executable, module, object, params, relax_vm, vm

__all__ = [
    "Category",
    "Closure",
    "DataType",
    "DataTypeCode",
    "Device",
    "Executable",
    "NDArray",
    "Object",
    "ShapeTuple",
    "Tensor",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "category_of",
    "const",
    "container",
    "convert",
    "cpu",
    "cuda",
    "device",
    "dump_tensor_cache",
    "empty",
    "executable",
    "from_dlpack",
    "get_global_func",
    "list_global_func_names",
    "load_executable",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "load_tensor_cache",
    "module",
    "object",
    "params",
    "register_func",
    "register_global_func",
    "relax_vm",
    "remove_global_func",
    "save_param_dict",
    "save_param_dict_to_file",
    "tensor",
    "vm",
]

_hint_at_absent(globals())
