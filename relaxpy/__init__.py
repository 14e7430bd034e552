"""Relax programs written as decorated Python functions, run as NumPy-vectorised Python.

Public names are loaded on first use, so that `import relaxpy` is fast.
"""

import sys as _sys
from typing import TYPE_CHECKING

from relaxpy.absent import AbsentModules as _AbsentModules
from relaxpy.lazy import finder as _finder

if TYPE_CHECKING:
    from relaxpy import (
        arith,
        distributed,
        dlight,
        error,
        errors,
        ir,
        nd,
        relax,
        relay,
        runtime,
        script,
        target,
        te,
        testing,
        tir,
        topi,
        transform,
    )
    from relaxpy.errors import RelaxpyError as TVMError
    from relaxpy.exec.compile import compile, compile as build, load_executable
    from relaxpy.exec.doctor import doctor
    from relaxpy.exec.executable import Executable
    from relaxpy.exec.runtime.registry import (
        get_global_func,
        register_func,
        register_func as register_global_func,
    )
    from relaxpy.exec.vm import VirtualMachine
    from relaxpy.ir import instrument
    from relaxpy.ir.core.device import Device, cpu, cuda, device
    from relaxpy.ir.core.dtype import DataType, DataTypeCode
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.transform import get_pipeline
    from relaxpy.rules import explain

__version__ = "0.1.0"

__all__ = [
    "DataType",
    "DataTypeCode",
    "Device",
    "Executable",
    "IRModule",
    "TVMError",
    "VirtualMachine",
    "__version__",
    "arith",
    "build",
    "compile",
    "cpu",
    "cuda",
    "device",
    "distributed",
    "dlight",
    "doctor",
    "error",
    "errors",
    "explain",
    "get_global_func",
    "get_pipeline",
    "instrument",
    "ir",
    "load_executable",
    "nd",
    "register_func",
    "register_global_func",
    "relax",
    "relay",
    "runtime",
    "script",
    "target",
    "te",
    "testing",
    "tir",
    "topi",
    "transform",
]

_LOCATIONS = {
    "DataType": "relaxpy.ir.core.dtype:DataType",
    "DataTypeCode": "relaxpy.ir.core.dtype:DataTypeCode",
    "Device": "relaxpy.ir.core.device:Device",
    "Executable": "relaxpy.exec.executable:Executable",
    "IRModule": "relaxpy.ir.module:IRModule",
    "TVMError": "relaxpy.errors:RelaxpyError",
    "VirtualMachine": "relaxpy.exec.vm:VirtualMachine",
    "arith": "relaxpy.arith",
    "build": "relaxpy.exec.compile:compile",
    "compile": "relaxpy.exec.compile:compile",
    "cpu": "relaxpy.ir.core.device:cpu",
    "cuda": "relaxpy.ir.core.device:cuda",
    "device": "relaxpy.ir.core.device:device",
    "distributed": "relaxpy.distributed",
    "dlight": "relaxpy.dlight",
    "doctor": "relaxpy.exec.doctor:doctor",
    "error": "relaxpy.error",
    "errors": "relaxpy.errors",
    "explain": "relaxpy.rules:explain",
    "get_global_func": "relaxpy.exec.runtime.registry:get_global_func",
    "get_pipeline": "relaxpy.ir.transform:get_pipeline",
    "instrument": "relaxpy.ir:instrument",
    "ir": "relaxpy.ir",
    "load_executable": "relaxpy.exec.compile:load_executable",
    "nd": "relaxpy.nd",
    "register_func": "relaxpy.exec.runtime.registry:register_func",
    "register_global_func": "relaxpy.exec.runtime.registry:register_func",
    "relax": "relaxpy.relax",
    "relay": "relaxpy.relay",
    "runtime": "relaxpy.runtime",
    "script": "relaxpy.script",
    "target": "relaxpy.target",
    "te": "relaxpy.te",
    "testing": "relaxpy.testing",
    "tir": "relaxpy.tir",
    "topi": "relaxpy.topi",
    "transform": "relaxpy.transform",
}

if not TYPE_CHECKING:  # it would make a type checker accept every name
    __getattr__ = _finder(globals(), _LOCATIONS)

_sys.meta_path.append(_AbsentModules)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
