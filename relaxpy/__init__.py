"""Run PyTorch, ONNX and Hugging Face models on the CPU without their frameworks.

    ex = relaxpy.compile("model.onnx")  # or a PyTorch module with args=(x,), or a decorated function
    y = ex(x)

`relaxpy.load` makes the module of a model without compiling it, `relaxpy.script` has the notation of
programs, `relaxpy.llm` language models, and `relaxpy.doctor()` shows what affects speed here.

Public names are loaded on first use, so that `import relaxpy` is fast.
"""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
import sys as _sys
from relaxpy.support.missing import AbsentModules as _AbsentModules

__version__ = "0.1.0"
_sys.meta_path.append(_AbsentModules)

_face(globals(), "relaxpy")
if TYPE_CHECKING:
    from relaxpy import arith as arith, distributed as distributed, dlight as dlight, error as error, errors as errors, ir as ir, llm as llm, nd as nd, relax as relax, relay as relay, runtime as runtime, s_tir as s_tir, script as script, sym as sym, target as target, te as te, testing as testing, tir as tir, tirx as tirx, topi as topi, transform as transform
    from relaxpy.errors import RelaxpyError as TVMError
    from relaxpy.exec.api.as_module import load as load
    from relaxpy.exec.api.as_module import load as from_torch
    from relaxpy.exec.api.as_module import load as load_model
    from relaxpy.exec.api.compile import compile as compile, load_executable as load_executable
    from relaxpy.exec.api.compile import compile as build
    from relaxpy.exec.api.executable import Executable as Executable
    from relaxpy.exec.api.vm import VirtualMachine as VirtualMachine
    from relaxpy.exec.inspect.check_values import check_values as check_values
    from relaxpy.exec.inspect.doctor import doctor as doctor
    from relaxpy.exec.inspect.doctor import doctor as show_config
    from relaxpy.exec.inspect.doctor import doctor as show_versions
    from relaxpy.exec.runtime.registry import get_global_func as get_global_func, register_func as register_func
    from relaxpy.exec.runtime.registry import register_func as register_global_func
    from relaxpy.ir import instrument as instrument
    from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
    from relaxpy.ir.core.dtype import DataType as DataType, DataTypeCode as DataTypeCode
    from relaxpy.ir.module import IRModule as IRModule
    from relaxpy.ir.transform import get_pipeline as get_pipeline
    from relaxpy.rules import explain as explain
    __all__ = ['DataType', 'DataTypeCode', 'Device', 'Executable', 'IRModule', 'TVMError', 'VirtualMachine', 'arith', 'build', 'check_values', 'compile', 'cpu', 'cuda', 'device', 'distributed', 'dlight', 'doctor', 'error', 'errors', 'explain', 'from_torch', 'get_global_func', 'get_pipeline', 'instrument', 'ir', 'llm', 'load', 'load_executable', 'load_model', 'nd', 'register_func', 'register_global_func', 'relax', 'relay', 'runtime', 's_tir', 'script', 'show_config', 'show_versions', 'sym', 'target', 'te', 'testing', 'tir', 'tirx', 'topi', 'transform']
