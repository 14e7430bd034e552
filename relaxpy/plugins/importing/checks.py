"""The check of elements as a kernel, for programs that are exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxpy.errors import unexpected
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, StringImm
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.text import T, kernel_text, written
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def as_kernel(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that copies a tensor, and fails at an element that is out of range."""
    _, name, x, *limits = call.args
    values = [limit.value for limit in limits if isinstance(limit, PrimValue)]
    if not isinstance(name, StringImm) or len(values) < len(limits):
        raise unexpected(call, "a check has a name and two numbers")
    return rules.te_kernel(builder, _checked, "check_elements", x, *values, about=name.value)


def _checked(x: Tensor, least: PrimExpr, most: PrimExpr, *, about: str) -> Any:
    is_float = x.dtype.is_float or least.dtype.is_float or most.dtype.is_float
    kind = "float64" if is_float else "int64"

    def is_inside(value: PrimExpr) -> PrimExpr:
        low, high, found = (ops.cast_to(each, kind) for each in (least, most, value))
        return ops.all_of(found >= low, found <= high)

    text = f"{about} has an element that is not from {rules.shown(least)} to {rules.shown(most)}"
    options = {"is_inside": is_inside, "message": text}
    outputs = {"result": (x.shape, str(x.dtype))}
    return written("check_elements", outputs, {"x": x}, _copy, **options)[0]


@kernel_text
def _copy(x: Any, result: Any, is_inside: Any, message: str) -> None:
    for (*row,) in T.grid(*x.shape):
        assert is_inside(x[*row]), message
        result[*row] = x[*row]
