"""Proofs for all values of the variables: the prover for relations between struct infos.

Most sizes are literals or the same expression, so the rules are imported for the first others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING

from relaxpy.ir.arith.algebra.data import holds_data
from relaxpy.ir.core.traverse import tree_size
from relaxpy.ir.tir import expr as tir, ops

if TYPE_CHECKING:
    from relaxpy.ir.arith.canonical import Canonical


@cache
def _general() -> Canonical:
    from relaxpy.ir.arith.canonical import GENERAL

    return GENERAL


def prove_equal(a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
    """True if `a` and `b` are always equal, False if they never are, None if unknown.

    Rule:
        CMP-1, CMP-2, CMP-3. True and False hold for all integer values of the variables, negative
        ones included, apart from values for which a side divides by zero (PX-3). True means that
        both have the same canonical form, so it is an equivalence.
    """
    if not isinstance(a, tir.PrimExpr) or not isinstance(b, tir.PrimExpr):
        a, b = ops.match_dtypes(a, b)
    return True if a is b else _decided(a, b)


@lru_cache(maxsize=1 << 10)
def _decided(a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
    return _general().prove_equal(a, b)


@lru_cache(maxsize=8)
def _over(data: frozenset[tir.Var]) -> Canonical:
    """The engine to which some variables are data."""
    from relaxpy.ir.arith.canonical import Canonical
    from relaxpy.ir.arith.engine import Facts

    return Canonical(Facts(data=data)) if data else _general()


def data_may_wrap(expr: tir.PrimExpr, data: frozenset[tir.Var] = frozenset()) -> bool:
    """True if an integer is computed from data (`holds_data`) and may overflow, so that it wraps.

    Its operands may wrap without that: only the last operation counts.
    """
    if not holds_data(expr, data):
        return False
    from relaxpy.ir.arith.rules import bounds

    return bounds.data_may_wrap(_over(data), expr)


def always(condition: tir.PrimExpr) -> bool:
    """True if `condition` is known to be true for all values of the variables."""
    result = simplify(simplify(condition))
    return isinstance(result, tir.IntImm) and result.value != 0


def simplify(expr: tir.PrimExpr, data: frozenset[tir.Var] = frozenset()) -> tir.PrimExpr:
    """`expr` in canonical, readable form: equal for all values of the variables.

    Arithmetic on variables in `data`, as on all elements of tensors, wraps around.

    >>> n = tir.Var("n", "int64")
    >>> simplify((n + 1) * 2 - n).same_as(n + 2)
    True
    """
    value = expr if isinstance(expr, tir.PrimExpr) else ops.convert(expr)
    is_simple = isinstance(value, (tir.ConstExpr, tir.Var))
    return value if is_simple else _over(data).simplify(value)


def in_order(
    value: tir.PrimExpr, simplify: Callable[[tir.PrimExpr], tir.PrimExpr] = simplify
) -> tir.PrimExpr:
    """The simplest form of a sum, with its terms in their order if all of them stay."""
    simple, first = simplify(value), value
    later: list[tir.PrimExpr] = []
    while isinstance(first, tir.Add):
        later.append(first.b)
        first = first.a
    ordered = reduce(ops.add, map(simplify, [first, *later[::-1]]))
    return ordered if tree_size(ordered) <= tree_size(simple) else simple
