"""The operators of Relax, each in its one home; importing this package registers all of them."""

from relaxpy.ir.relax.op.call import (
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
)
from relaxpy.ir.relax.op.misc import assert_op, null_value, print, shape_of
from relaxpy.ir.relax.op.registry import OpDef, register, registered_ops

__all__ = [
    "OpDef",
    "assert_op",
    "call_dps_packed",
    "call_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "null_value",
    "print",
    "register",
    "registered_ops",
    "shape_of",
]
