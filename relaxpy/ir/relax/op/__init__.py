"""The operators of Relax, each in its one home; importing this package registers all of them."""

from relaxpy.ir.relax.op import (
    binary,
    builtin,
    closures,
    creation,
    datatype,
    devices,
    distributed,
    indexing,
    linear_algebra,
    manipulate,
    memory,
    nn,
    packed,
    python,
    search,
    statistical,
    ternary,
    unary,
    vm,
)
from relaxpy.ir.relax.op.builtin import stop_lift_params
from relaxpy.ir.relax.op.call import (
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
)
from relaxpy.ir.relax.op.linear_algebra import linear
from relaxpy.ir.relax.op.misc import assert_op, null_value, print, shape_of
from relaxpy.ir.relax.op.registry import OpDef, register, registered_ops

__all__ = [
    "OpDef",
    "assert_op",
    "binary",
    "builtin",
    "call_dps_packed",
    "call_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "closures",
    "creation",
    "datatype",
    "devices",
    "distributed",
    "indexing",
    "linear",
    "linear_algebra",
    "manipulate",
    "memory",
    "nn",
    "null_value",
    "packed",
    "print",
    "python",
    "register",
    "registered_ops",
    "search",
    "shape_of",
    "statistical",
    "stop_lift_params",
    "ternary",
    "unary",
    "vm",
]


def __getattr__(name: str) -> OpDef:
    """The operator registered as `relax.` and this name."""
    found = registered_ops().get(f"relax.{name}")
    if found is None:
        raise AttributeError(f"there is no operator relax.{name}")
    return found


def __dir__() -> list[str]:
    plain = (name.removeprefix("relax.") for name in registered_ops())
    return sorted({*__all__, *(name for name in plain if "." not in name)})
