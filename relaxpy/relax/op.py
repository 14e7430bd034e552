"""The operators of Relax as functions that build calls."""

from relaxpy.ir.relax.op import (
    OpDef,
    __dir__ as __dir__,
    __getattr__ as __getattr__,
    assert_op,
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    linear,
    nn,
    null_value,
    print,
    register,
    registered_ops,
    shape_of,
)

__all__ = [
    "OpDef",
    "assert_op",
    "call_dps_packed",
    "call_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "linear",
    "nn",
    "null_value",
    "print",
    "register",
    "registered_ops",
    "shape_of",
]
