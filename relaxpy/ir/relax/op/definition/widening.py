"""Computation in float32 instead of narrower floats, with results that are rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import R, find
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
    from relaxpy.ir.op_record import Gradient, Legalization
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_WIDE = DataType("float32")


def is_narrow(sinfo: rx.StructInfo | None) -> bool:
    """Return whether a tensor or a scalar holds floats narrower than float32."""
    known = isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo))
    return known and sinfo.dtype.is_float and sinfo.dtype.bits < _WIDE.bits  # type: ignore[union-attr]


def widened(call: rx.Call, bind: Callable[[rx.Expr], rx.Expr]) -> rx.Call:
    """The call on operands cast to float32; itself if none of them is narrower.

    `bind` returns variables for the casts.
    """
    args = tuple(_wide(arg, bind) for arg in call.args)
    if all(new is old for new, old in zip(args, call.args, strict=True)):
        return call
    operator = find(cast("Op", call.op))
    assert operator is not None
    wide = rx.Call(call.op, args, call.attrs, call.sinfo_args, span=call.span)
    return replace(wide, struct_info=operator.infer(wide, Context()))


def _wide(expr: rx.Expr, bind: Callable[[rx.Expr], rx.Expr]) -> rx.Expr:
    sinfo = expr.struct_info
    if not is_narrow(sinfo):
        return expr
    if isinstance(expr, rx.Constant):
        return rx.Constant(expr.data.astype(_WIDE.numpy()))
    if isinstance(sinfo, rx.TensorStructInfo):
        return bind(R.astype(expr, _WIDE))
    assert isinstance(sinfo, rx.PrimStructInfo)
    return expr if sinfo.value is None else rx.PrimValue(ops.cast_to(sinfo.value, _WIDE))


def narrowed(value: rx.Expr, sinfo: rx.StructInfo | None) -> rx.Expr:
    """A value with the datatypes of narrower floats that `sinfo` has."""
    if isinstance(sinfo, rx.TupleStructInfo):
        is_tuple = isinstance(value, rx.Tuple)
        fields = value.fields if is_tuple else ()  # type: ignore[attr-defined]
        items = fields or tuple(rx.TupleGetItem(value, k) for k in range(len(sinfo.fields)))
        return rx.Tuple(tuple(map(narrowed, items, sinfo.fields)))
    if not is_narrow(sinfo):
        return value
    return cast("rx.Expr", R.astype(value, cast("rx.TensorStructInfo", sinfo).dtype))


def gradient_in_float32(rule: Gradient) -> Gradient:
    """The gradient rule on operands, result and gradient in float32 instead of narrower floats.

    The result is computed again from these operands: it is rounded no more than they are.
    """

    def wide_rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        wide = widened(call, builder.emit)
        if wide is call:
            return rule(var, call, gradient, builder)
        wide_gradient = _wide_fields(gradient, builder)
        partials = rule(cast("rx.Var", wide), wide, wide_gradient, builder)
        return [
            _of_operand(partial, operand)
            for partial, operand in zip(partials, call.args, strict=True)
        ]

    return wide_rule


def _wide_fields(gradient: rx.Expr, builder: BlockBuilder) -> rx.Expr:
    if isinstance(gradient, rx.Tuple):
        return rx.Tuple(tuple(_wide_fields(field, builder) for field in gradient.fields))
    sinfo = gradient.struct_info
    if isinstance(sinfo, rx.TupleStructInfo):
        items = (rx.TupleGetItem(gradient, k) for k in range(len(sinfo.fields)))
        return rx.Tuple(tuple(_wide_fields(builder.emit(item), builder) for item in items))
    return _wide(gradient, builder.emit)


def _of_operand(partial: rx.Expr, operand: rx.Expr) -> rx.Expr:
    if rx.is_call_of(partial, "relax.grad.no_grad"):
        return cast("rx.Expr", R.grad.no_grad(operand))
    return narrowed(partial, operand.struct_info)


def legalization_in_float32(rule: Legalization) -> Legalization:
    """The legalisation of the call on operands in float32 instead of narrower floats."""

    def wide_rule(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        wide = widened(call, builder.emit)
        value = cast("rx.Expr", rule(builder, wide))
        return value if wide is call else narrowed(value, call.struct_info)

    return wide_rule
