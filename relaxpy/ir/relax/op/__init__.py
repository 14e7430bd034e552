"""The operators of Relax, one module per family; importing this package registers all of them."""

from pkgutil import iter_modules, resolve_name

from relaxpy.ir.relax.op import builtin, ccl, distributed, grad, image, memory, nn, vision, vm
from relaxpy.ir.relax.op.builtin import stop_lift_params
from relaxpy.ir.relax.op.call import (
    call_dps_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_packed,
    call_tir_with_grad,
)
from relaxpy.ir.relax.op.definition.layouts import InferredLayouts, same_layout
from relaxpy.ir.relax.op.definition.registry import (
    OpDef,
    R,
    register,
    register_gradient,
    registered_ops,
    unregister,
)
from relaxpy.ir.relax.op.linear_algebra import linear
from relaxpy.ir.relax.op.misc import assert_op, null_value, print, shape_of
from relaxpy.ir.relax.op.scatter import masked_fill

for _family in iter_modules(__path__):
    resolve_name(f"{__name__}.{_family.name}")

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


def __getattr__(name: str) -> OpDef:
    """The operator registered as `relax.` and this name."""
    return getattr(R, name)  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(R)})
