"""Run-time values, executables and packed functions."""

from relaxpy.exec.compile import load_executable as load_executable
from relaxpy.exec.executable import Executable as Executable
from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
from relaxpy.exec.runtime.params import (
    load_param_dict as load_param_dict,
    load_param_dict_from_file as load_param_dict_from_file,
    save_param_dict as save_param_dict,
    save_param_dict_to_file as save_param_dict_to_file,
)
from relaxpy.exec.runtime.registry import (
    get_global_func as get_global_func,
    list_global_func_names as list_global_func_names,
    register_func as register_func,
    remove_global_func as remove_global_func,
)
from relaxpy.exec.runtime.tensor_cache import (
    dump_tensor_cache as dump_tensor_cache,
    load_tensor_cache as load_tensor_cache,
)
from relaxpy.exec.runtime.tensors import (
    convert as convert,
    empty as empty,
    from_dlpack as from_dlpack,
    tensor as tensor,
)
from relaxpy.exec.runtime.values import (
    Category as Category,
    Closure as Closure,
    ShapeTuple as ShapeTuple,
    category_of as category_of,
)
from relaxpy.exec.vm import VirtualMachine as VirtualMachine
from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
from relaxpy.ir.core.dtype import DataType as DataType, DataTypeCode as DataTypeCode
from relaxpy.ir.core.node import Node as _Node
from relaxpy.ir.core.tensor import Tensor as Tensor
from relaxpy.ir.tir.ops import const as const
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.runtime import (
    container as container,
    executable as executable,
    module as module,
    object as object,
    params as params,
    relax_vm as relax_vm,
    vm as vm,
)

load_module = load_executable
register_global_func = register_func
Object = _Node
NDArray = Tensor

Module = Executable

_hint_at_absent(globals())
