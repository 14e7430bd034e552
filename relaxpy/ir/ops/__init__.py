"""The operators of Relax, one module per family, which the first use of an operator imports."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from relaxpy.ir.op_families import FAMILIES
from relaxpy.ir.ops.definition.registry import (
    OpDef,
    R,
    register,
    register_gradient,
    registered_ops,
    unregister,
)

if TYPE_CHECKING:
    from relaxpy.ir.ops import builtin, ccl, distributed, grad, image, memory, nn, vision, vm
    from relaxpy.ir.ops.builtin import stop_lift_params
    from relaxpy.ir.ops.call import (
        call_dps_packed,
        call_packed,
        call_pure_packed,
        call_tir,
        call_tir_inplace,
        call_tir_packed,
        call_tir_with_grad,
    )
    from relaxpy.ir.ops.definition.axis_rules import InferredLayouts, same_layout
    from relaxpy.ir.ops.linear_algebra import linear
    from relaxpy.ir.ops.misc import assert_op, null_value, print, shape_of
    from relaxpy.ir.ops.scatter import masked_fill

__all__ = [
    "InferredLayouts",
    "OpDef",
    "assert_op",
    "builtin",
    "call_dps_packed",
    "call_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "call_tir_packed",
    "call_tir_with_grad",
    "ccl",
    "distributed",
    "grad",
    "image",
    "linear",
    "masked_fill",
    "memory",
    "nn",
    "null_value",
    "print",
    "register",
    "register_gradient",
    "registered_ops",
    "same_layout",
    "shape_of",
    "stop_lift_params",
    "unregister",
    "vision",
    "vm",
]
_FUNCTIONS = {
    "InferredLayouts": "definition.axis_rules",
    "call_packed": "call",
    "call_tir_packed": "call",
    "linear": "linear_algebra",
    "masked_fill": "scatter",
    "same_layout": "definition.axis_rules",
    "stop_lift_params": "builtin",
}


def __getattr__(name: str) -> OpDef:
    """The operator registered as `relax.` and this name, or what a module of this package has."""
    if name == "nn" or f"\n{name}:" in FAMILIES:
        return resolve_name(f"{__name__}.{name}:")  # type: ignore[no-any-return]
    if name in _FUNCTIONS:
        return resolve_name(f"{__name__}.{_FUNCTIONS[name]}:{name}")  # type: ignore[no-any-return]
    return getattr(R, name)  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(R)})
