"""What may be moved past what: calls that have effects, and values whose computation may fail."""

from __future__ import annotations

from collections.abc import Mapping

from relaxpy.ir.op import Op
from relaxpy.ir.relax.block_builder.infer import is_pure_call
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Binding,
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relaxpy.ir.relax.relations.context import Context


class Effects:
    """Answers for calls in one function; `functions` are those of the module around it.

    Of one that is not there nothing is known, but that a function declared pure calls only pure
    ones (PU-8).
    """

    def __init__(self, context: Context, functions: Mapping[str, BaseFunc], func: Expr) -> None:
        self.context = context
        self.functions = functions
        self.pure = (
            isinstance(func, Function)
            and func.is_pure
            and not func.attrs.get("relax.force_pure", False)
        )

    def is_pure(self, call: Call) -> bool:
        """Whether a call has no effect but its result."""
        if isinstance(call.op, GlobalVar):
            callee = self.functions.get(call.op.name_hint)
            return self.pure if callee is None else isinstance(callee, Function) and callee.is_pure
        if isinstance(call.op, Op) or call.op.struct_info is not None:
            return is_pure_call(call, self.context)
        return call.op.is_pure if isinstance(call.op, Function) else self.pure

    def is_barrier(self, binding: Binding) -> bool:
        """Whether nothing moves past a binding: it has effects, or branches (OPT-3, OPT-4)."""
        value = binding.value
        return isinstance(value, If) or (isinstance(value, Call) and not self.is_pure(value))


def may_fail(binding: Binding) -> bool:
    """Whether a pure binding may end in an error, or never end: OPT-3 keeps such ones in order.

    Branches may if anything in them may that stands outside dataflow blocks.

    An operator that is computed by a kernel of its own fails by the shapes and datatypes of its
    operands alone. Where these are known, they were found right when the call was derived.
    """
    value = binding.value
    if isinstance(binding, MatchCast):
        return True
    if isinstance(value, If):
        blocks = (*value.true_branch.blocks, *value.false_branch.blocks)
        ordinary = (block for block in blocks if not isinstance(block, DataflowBlock))
        return any(may_fail(b) for block in ordinary for b in block.bindings)
    if not isinstance(value, Call):
        return False
    if not isinstance(value.op, Op) or not value.op.has_attr("FLegalize"):
        return True
    return not (_known(value.struct_info) and all(map(_is_known, value.args)))


def _is_known(expr: Expr) -> bool:
    if isinstance(expr, Tuple):
        return all(map(_is_known, expr.fields))
    return _known(expr.struct_info)


def _known(info: StructInfo | None) -> bool:
    match info:
        case TensorStructInfo(dtype=dtype):
            return info.get_shape() is not None and not dtype.is_void
        case TupleStructInfo(fields=fields):
            return all(map(_known, fields))
        case PrimStructInfo():
            return True
        case ShapeStructInfo(values=values):
            return values is not None
        case _:
            return False
