"""The head of an expression, by which most patterns can be ruled out at once."""

from __future__ import annotations

from typing import TypeAlias

from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.nodes import Call, Expr, Tuple, TupleGetItem

# The operator that is called, or for other expressions their class.
Head: TypeAlias = "Op | type[Expr]"


def head_of(value: Expr) -> Head:
    """The head of an expression."""
    if isinstance(value, Call) and isinstance(value.op, Op):
        return value.op
    return type(value)


def heads(pattern: dp.DFPattern) -> frozenset[Head] | None:
    """The heads of the expressions that a pattern may match; None stands for any head."""
    match pattern:
        case dp.CallPattern(op=op):
            return _operators(op)
        case dp.TuplePattern() | dp.UnorderedTuplePattern():
            return frozenset((Tuple,))
        case dp.TupleGetItemPattern():
            return frozenset((TupleGetItem,))
        case dp.OrPattern(left=left, right=right):
            return _union(heads(left), heads(right))
        case dp.AndPattern(left=left, right=right):
            known = [side for side in (heads(left), heads(right)) if side is not None]
            return frozenset.intersection(*known) if known else None
        case dp.RestrictedPattern(pattern=inner):
            return heads(inner)
        case _:
            return None


def _operators(callee: dp.DFPattern) -> frozenset[Head] | None:
    """The operators that the pattern of a callee may match; None stands for any callee."""
    match callee:
        case dp.ExprPattern(expr=Op() as op):
            return frozenset((op,))
        case dp.OrPattern(left=left, right=right):
            return _union(_operators(left), _operators(right))
        case dp.AttrPattern(pattern=inner):
            return _operators(inner)
        case _:
            return None


def _union(left: frozenset[Head] | None, right: frozenset[Head] | None) -> frozenset[Head] | None:
    return None if left is None or right is None else left | right
