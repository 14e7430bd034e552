"""Relax programs written as decorated Python functions, run on NumPy or as machine code.

Public names are loaded on first use, so that `import relaxpy` is fast.
"""

import sys as _sys
from typing import TYPE_CHECKING

from relaxpy.lazy import finder as _finder, located as _located
from relaxpy.missing import AbsentModules as _AbsentModules

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
        s_tir,
        script,
        sym,
        target,
        te,
        testing,
        tir,
        tirx,
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
    "s_tir",
    "script",
    "sym",
    "target",
    "te",
    "testing",
    "tir",
    "tirx",
    "topi",
    "transform",
]

_LOCATIONS = _located(
    {
        "relaxpy": "arith distributed dlight error errors ir nd relax relay runtime s_tir script "
        "sym target te testing tir tirx topi transform",
        "relaxpy.errors": "TVMError=RelaxpyError",
        "relaxpy.exec.compile": "build=compile compile load_executable",
        "relaxpy.exec.doctor": "doctor",
        "relaxpy.exec.executable": "Executable",
        "relaxpy.exec.runtime.registry": "get_global_func register_func "
        "register_global_func=register_func",
        "relaxpy.exec.vm": "VirtualMachine",
        "relaxpy.ir": "instrument",
        "relaxpy.ir.core.device": "Device cpu cuda device",
        "relaxpy.ir.core.dtype": "DataType DataTypeCode",
        "relaxpy.ir.module": "IRModule",
        "relaxpy.ir.transform": "get_pipeline",
        "relaxpy.rules": "explain",
    }
)
if not TYPE_CHECKING:  # it would make a type checker accept every name
    __getattr__ = _finder(globals(), _LOCATIONS)

_sys.meta_path.append(_AbsentModules)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
