"""FNormalize: the normal forms that operators define for their own calls."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from relaxpy.errors import unexpected
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import apply_column
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.block_builder.emitter import Emitter


def with_written_operands(
    call: rx.Call, out: Emitter, leaf: Callable[[rx.Expr], rx.Expr]
) -> rx.Call:
    """The call of a kernel with a tuple of operands instead of a variable that holds one.

    The operands are the fields of the tuple that the variable is bound to, if they are in scope;
    otherwise `leaf` binds each field of the variable.
    """
    packed = call.args[1] if len(call.args) > 1 else None
    if not isinstance(packed, rx.Var):
        return call
    sinfo = out.ctx.sinfo_of(packed)
    if not isinstance(sinfo, rx.TupleStructInfo):
        return call
    value, in_block = out.values.get(packed), isinstance(packed, rx.DataflowVar)
    if not isinstance(value, rx.Tuple) or not (
        in_block or not any(isinstance(field, rx.DataflowVar) for field in value.fields)
    ):
        items = (rx.TupleGetItem(packed, i, span=call.span) for i in range(len(sinfo.fields)))
        value = rx.Tuple(tuple(map(leaf, items)), span=packed.span)
    return replace(call, args=(call.args[0], value, *call.args[2:]))


def normalized_call(call: rx.Call, builder: BlockBuilder) -> rx.Expr:
    """The replacement of a normal-form call by its operator's FNormalize rule; itself to keep it.

    Errors:
        MisuseError: the rule does not return an expression.
    """
    op = call.op
    assert isinstance(op, Op)
    rule = op.record.normalize
    assert rule is not None
    result = apply_column(op.name, "normalisation", rule, builder=builder, call=call)
    if not isinstance(result, rx.Expr):
        raise unexpected(
            result, f"the normalisation of {op.name} returns an expression", span=call.span
        )
    if _is_same_call(result, call):
        return call
    if result.span is None and isinstance(result, rx.Call):
        return replace(result, span=call.span)
    return result


def _is_same_call(value: rx.Expr, call: rx.Call) -> bool:
    """True if a value is a call of the same operator with the same operands and attributes."""
    return (
        isinstance(value, rx.Call)
        and value.op is call.op
        and len(value.args) == len(call.args)
        and all(map(is_, value.args, call.args))
        and value.attrs == call.attrs
        and value.sinfo_args == call.sinfo_args
    )
