"""Computation in float32 in place of narrower floats, with results that are rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from relaxpy.dataclass import replace
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import (
    Call,
    Constant,
    Expr,
    PrimStructInfo,
    PrimValue,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    is_call_of,
)
from relaxpy.ir.relax.op.definition.registry import R, find
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.tir import ops

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
    from relaxpy.ir.op_record import Gradient, Legalization
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_WIDE = DataType("float32")


def is_narrow(sinfo: StructInfo | None) -> bool:
    """Whether a tensor or a scalar holds floats narrower than float32."""
    known = isinstance(sinfo, (TensorStructInfo, PrimStructInfo))
    return known and sinfo.dtype.is_float and sinfo.dtype.bits < _WIDE.bits  # type: ignore[union-attr]


def widened(call: Call, bind: Callable[[Expr], Expr]) -> Call:
    """The call on operands cast to float32; itself if none of them is narrower.

    `bind` returns variables for the casts.
    """
    args = tuple(_wide(arg, bind) for arg in call.args)
    if all(new is old for new, old in zip(args, call.args, strict=True)):
        return call
    operator = find(cast("Op", call.op))
    assert operator is not None
    wide = Call(call.op, args, call.attrs, call.sinfo_args, span=call.span)
    return replace(wide, struct_info=operator.infer(wide, Context()))


def _wide(expr: Expr, bind: Callable[[Expr], Expr]) -> Expr:
    sinfo = expr.struct_info
    if not is_narrow(sinfo):
        return expr
    if isinstance(expr, Constant):
        return Constant(expr.data.astype(_WIDE.numpy()))
    if isinstance(sinfo, TensorStructInfo):
        return bind(R.astype(expr, _WIDE))
    assert isinstance(sinfo, PrimStructInfo)
    return expr if sinfo.value is None else PrimValue(ops.cast_to(sinfo.value, _WIDE))


def narrowed(value: Expr, sinfo: StructInfo | None) -> Expr:
    """A value with the datatypes of narrower floats that `sinfo` has."""
    if isinstance(sinfo, TupleStructInfo):
        is_tuple = isinstance(value, Tuple)
        fields = value.fields if is_tuple else ()  # type: ignore[attr-defined]
        items = fields or tuple(TupleGetItem(value, k) for k in range(len(sinfo.fields)))
        return Tuple(tuple(map(narrowed, items, sinfo.fields)))
    if not is_narrow(sinfo):
        return value
    return cast("Expr", R.astype(value, cast("TensorStructInfo", sinfo).dtype))


def gradient_in_float32(rule: Gradient) -> Gradient:
    """The gradient rule on operands, result and gradient in float32 in place of narrower floats.

    The result is computed again from these operands: it is rounded no more than they are.
    """

    def wide_rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> Sequence[Expr]:
        wide = widened(call, builder.emit)
        if wide is call:
            return rule(var, call, gradient, builder)
        wide_gradient = _wide_fields(gradient, builder)
        partials = rule(cast("Var", wide), wide, wide_gradient, builder)
        return [
            _of_operand(partial, operand)
            for partial, operand in zip(partials, call.args, strict=True)
        ]

    return wide_rule


def _wide_fields(gradient: Expr, builder: BlockBuilder) -> Expr:
    if isinstance(gradient, Tuple):
        return Tuple(tuple(_wide_fields(field, builder) for field in gradient.fields))
    sinfo = gradient.struct_info
    if isinstance(sinfo, TupleStructInfo):
        items = (TupleGetItem(gradient, k) for k in range(len(sinfo.fields)))
        return Tuple(tuple(_wide_fields(builder.emit(item), builder) for item in items))
    return _wide(gradient, builder.emit)


def _of_operand(partial: Expr, operand: Expr) -> Expr:
    if is_call_of(partial, "relax.grad.no_grad"):
        return cast("Expr", R.grad.no_grad(operand))
    return narrowed(partial, operand.struct_info)


def legalization_in_float32(rule: Legalization) -> Legalization:
    """The legalisation of the call on operands in float32 in place of narrower floats."""

    def wide_rule(builder: BlockBuilder, call: Call) -> Expr:
        wide = widened(call, builder.emit)
        value = cast("Expr", rule(builder, wide))
        return value if wide is call else narrowed(value, call.struct_info)

    return wide_rule
