"""Run-time values, executables and packed functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime")
if TYPE_CHECKING:
    from relaxpy.exec.api.compile import load_executable as load_executable
    from relaxpy.exec.api.compile import load_executable as load_module
    from relaxpy.exec.api.executable import Executable as Executable
    from relaxpy.exec.api.executable import Executable as Module
    from relaxpy.exec.api.vm import VirtualMachine as VirtualMachine
    from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
    from relaxpy.exec.runtime.registry import get_global_func as get_global_func, list_global_func_names as list_global_func_names, register_func as register_func, remove_global_func as remove_global_func
    from relaxpy.exec.runtime.registry import register_func as register_global_func
    from relaxpy.exec.runtime.tensors import convert as convert, empty as empty, from_dlpack as from_dlpack, tensor as tensor
    from relaxpy.exec.runtime.values import Category as Category, Closure as Closure, ShapeTuple as ShapeTuple, category_of as category_of
    from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
    from relaxpy.ir.core.dtype import DataType as DataType, DataTypeCode as DataTypeCode
    from relaxpy.ir.core.node import Node as Object
    from relaxpy.ir.core.tensor import Tensor as Tensor
    from relaxpy.ir.core.tensor import Tensor as NDArray
    from relaxpy.ir.tir.ops import const as const
    from relaxpy.runtime import container as container, executable as executable, module as module, object as object, params as params, relax_vm as relax_vm, vm as vm
    from relaxpy.tvm.tensor_cache import dump_tensor_cache as dump_tensor_cache, load_param_dict as load_param_dict, load_param_dict_from_file as load_param_dict_from_file, load_tensor_cache as load_tensor_cache, save_param_dict as save_param_dict, save_param_dict_to_file as save_param_dict_to_file
    __all__ = ['Category', 'Closure', 'DataType', 'DataTypeCode', 'Device', 'Executable', 'Module', 'NDArray', 'Object', 'ShapeTuple', 'Tensor', 'VMInstrumentReturnKind', 'VirtualMachine', 'category_of', 'const', 'container', 'convert', 'cpu', 'cuda', 'device', 'dump_tensor_cache', 'empty', 'executable', 'from_dlpack', 'get_global_func', 'list_global_func_names', 'load_executable', 'load_module', 'load_param_dict', 'load_param_dict_from_file', 'load_tensor_cache', 'module', 'object', 'params', 'register_func', 'register_global_func', 'relax_vm', 'remove_global_func', 'save_param_dict', 'save_param_dict_to_file', 'tensor', 'vm']
