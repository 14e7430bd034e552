"""What an expression is at first sight, for patterns that can match nothing else."""

from __future__ import annotations

from typing import TypeAlias

from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl.pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    OrPattern,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
)
from relaxpy.ir.relax.nodes import Call, Expr, Tuple, TupleGetItem

# The operator that is called, or else the kind of expression.
Head: TypeAlias = "Op | type[Expr]"


def head_of(value: Expr) -> Head:
    """The head of an expression."""
    if isinstance(value, Call) and isinstance(value.op, Op):
        return value.op
    return type(value)


def heads(pattern: DFPattern) -> frozenset[Head] | None:
    """The heads of all expressions that a pattern may match; None is any."""
    match pattern:
        case CallPattern(op=op):
            return _operators(op)
        case TuplePattern() | UnorderedTuplePattern():
            return frozenset((Tuple,))
        case TupleGetItemPattern():
            return frozenset((TupleGetItem,))
        case OrPattern(left=left, right=right):
            either = heads(left), heads(right)
            if either[0] is None or either[1] is None:
                return None
            return either[0] | either[1]
        case AndPattern(left=left, right=right):
            both = [found for found in (heads(left), heads(right)) if found is not None]
            return frozenset.intersection(*both) if both else None
        case (
            AttrPattern(pattern=inner)
            | DataTypePattern(pattern=inner)
            | ShapePattern(pattern=inner)
            | StructInfoPattern(pattern=inner)
        ):
            return heads(inner)
        case _:
            return None


def _operators(callee: DFPattern) -> frozenset[Head] | None:
    """The operators that the pattern of what is called may match; None is any callee."""
    match callee:
        case ExprPattern(expr=Op() as op):
            return frozenset((op,))
        case OrPattern(left=left, right=right):
            either = _operators(left), _operators(right)
            if either[0] is None or either[1] is None:
                return None
            return either[0] | either[1]
        case AttrPattern(pattern=inner):
            return _operators(inner)
        case _:
            return None
