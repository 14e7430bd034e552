"""Calls of packed functions that return their arguments, or take the context of the run."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.dataclass import replace
from relaxpy.errors import StructInfoTypeError
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, TupleStructInfo, convert_to_expr
from relaxpy.ir.relax.op.call import (
    Operands,
    index_list,
    operand_of_output,
    operand_tuple,
    packed_callee,
    packed_derivation,
    packed_result,
)
from relaxpy.ir.relax.op.closures import declared_sinfo
from relaxpy.ir.relax.op.definition.registry import Operand, register
from relaxpy.ir.relax.op.outputs import StructInfos, sinfo_list
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.context import Context


def _infer_inplace(call: Call, ctx: Context) -> StructInfo:
    result = packed_result(replace(call, attrs=EMPTY_ATTRS), ctx)
    outputs = result.fields if isinstance(result, TupleStructInfo) else (result,)
    inputs = [ctx.sinfo_of(arg) for arg in call.args[1:]]
    indices = operand_of_output(call, len(inputs), len(outputs), names=("argument", "result"))
    for index, output in zip(indices, outputs, strict=True):
        if index != -1 and not is_base_of(output, inputs[index]):
            raise StructInfoTypeError(
                f"argument {index + 1}, {inputs[index]}, cannot be the result {output}",
                about=call.args[index + 1],
            )
    return result


@register(
    "relax.call_inplace_packed",
    pure=True,
    infer=_infer_inplace,
    calls=CallKind.INPLACE_PACKED,
)
def call_inplace_packed(
    func: Expr | str,
    *args: Operand,
    inplace_indices: int | Sequence[int],
    sinfo_args: StructInfos = (),
) -> Call:
    """The result of a packed function that writes into arguments.

    Declared pure: whoever writes it promises that nothing else sees those arguments afterwards.

    Shapes:
        inplace_indices  for each result the argument that it is, -1 for a new one
        result           `sinfo_args`, a tuple of several
    Errors:
        StructInfoError: `func` is not a packed function, or a result does not fit its argument.
    """
    return Call(
        call_inplace_packed.op,
        (packed_callee(func), *(convert_to_expr(a) for a in args)),
        Attrs({"inplace_indices": index_list(inplace_indices)}),
        sinfo_list(sinfo_args),
    )


def _infer_with_context(call: Call, ctx: Context) -> StructInfo:
    packed_derivation(call, ctx)
    packed = ctx.sinfo_of(call.args[1]) if len(call.args) == 2 else None
    if not isinstance(packed, TupleStructInfo):
        raise StructInfoTypeError("takes what to call and a tuple of arguments", about=call)
    return declared_sinfo(call.sinfo_args, TupleStructInfo(()))


@register(
    "relax.call_builtin_with_ctx",
    infer=_infer_with_context,
    calls=CallKind.PACKED_WITH_CONTEXT,
)
def call_builtin_with_ctx(
    func: Expr | str, args: Operands, *, sinfo_args: StructInfos = ()
) -> Call:
    """The result of a packed function whose first argument is the context of the run; impure.

    Shapes:
        args    the arguments after the context, in a tuple
        result  `sinfo_args`, a tuple of several, unit for none
    Errors:
        StructInfoError: `func` is not a packed function.
    """
    return Call(
        call_builtin_with_ctx.op,
        (packed_callee(func), operand_tuple(args)),
        EMPTY_ATTRS,
        sinfo_list(sinfo_args),
    )
