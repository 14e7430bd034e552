"""Patterns in expressions: linear maps, bounds of variables, and common subexpressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxpy.ir.arith.algebra import folding, poly
from relaxpy.ir.arith.algebra.affine import linear_terms
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.canonical import GENERAL, entry_point, is_integer
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.substitution import mentions


def linear_row(p: Poly, variables: Sequence[Var]) -> tuple[list[Poly], Poly] | None:
    """The coefficients of `variables`, in their order, and the rest; None if p is not linear.

    If a variable is listed several times, its last position has the coefficient.
    """
    linear = linear_terms(p, variables)
    if linear is None:
        return None
    last = {var: position for position, var in enumerate(variables)}
    row: list[Poly] = [poly.ZERO] * len(variables)
    for var, coefficient in linear[0].items():
        row[last[var]] = coefficient
    return row, linear[1]


@entry_point
def detect_linear_equation(expr: ExprLike, var_list: Sequence[Var]) -> list[PrimExpr]:
    """The coefficient of each variable, and the rest; [] if `expr` is not linear.

    A negative coefficient of an unsigned expression has the signed datatype of its width.

    Errors:
        MisuseError (also TypeError): one of `var_list` is not a variable.
    """
    value, variables = ops.convert(expr), ops.check_variables(var_list)
    if not is_integer(value.dtype):
        is_constant = not mentions(value, variables)
        return [ops.const(0, value.dtype) for _ in variables] + [value] if is_constant else []
    linear = linear_row(GENERAL.poly(value), variables)
    if linear is None:
        return []
    signed = DataType(f"int{value.dtype.bits}")
    coefficients: list[PrimExpr] = []
    for p in (*linear[0], linear[1]):
        number = poly.constant_of(p)
        dtype = signed if number is not None and number < 0 else value.dtype
        coefficient = GENERAL.written(p, dtype)
        if coefficient is None:
            return []
        coefficients.append(coefficient)
    return coefficients


@entry_point
def detect_clip_bound(expr: ExprLike, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """The minimum and the maximum of each variable under the condition `expr`, in turn.

    None is a limit that the condition does not set. The list is empty if a conjunct mentions none
    or several of the variables, if it is not a comparison of linear terms, or if conjuncts
    contradict each other.

    Errors:
        MisuseError (also TypeError): `expr` is not Bool, or one of `var_list` not a variable.
    """
    variables = ops.check_variables(var_list)
    ends: list[PrimExpr | None] = [None] * (2 * len(variables))
    for conjunct in at_most_zero(ops.truth(expr)):
        if conjunct is None:
            return []
        p, dtype = conjunct
        linear = linear_row(p, variables)
        inside = [] if linear is None else [k for k, c in enumerate(linear[0]) if c]
        if linear is None or len(inside) != 1:
            return []
        [index] = inside
        number = poly.constant_of(linear[0][index])
        if number is None:
            return []
        # number * var + rest <= 0
        rest = GENERAL.written(poly.scaled(linear[1], -1), dtype, exact=True)
        if rest is None:
            return []
        by, end = ops.const(abs(number), dtype), 2 * index
        if number > 0:
            limit, choose = rest // by, ops.minimum
            end += 1
        else:
            limit, choose = ops.floordiv(rest, by) * -1, ops.maximum
        previous = ends[end]
        limit = ops.cast_to(limit, variables[index].dtype)
        ends[end] = simplify(limit if previous is None else choose(previous, limit))
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        if low is not None and high is not None:
            empty = simplify(high < low)
            if isinstance(empty, tir.IntImm) and empty.value:
                return []
    return ends


def at_most_zero(condition: PrimExpr) -> Iterator[tuple[Poly, DataType] | None]:
    """Polynomials that are at most 0 exactly where `condition` holds; None for other conjuncts."""
    for conjunct in folding.conjuncts(condition):
        if isinstance(conjunct, tir.Not):  # moved inside, where it may turn comparisons
            conjunct = simplify(conjunct)
            if not isinstance(conjunct, tir.Not):
                yield from at_most_zero(conjunct)
                continue
        yield from _sides_at_most_zero(conjunct)


def _sides_at_most_zero(condition: PrimExpr) -> Iterator[tuple[Poly, DataType] | None]:
    match condition:
        case tir.GT(a=a, b=b):
            yield from _sides_at_most_zero(tir.LT(b, a))
        case tir.GE(a=a, b=b):
            yield from _sides_at_most_zero(tir.LE(b, a))
        case tir.LT(a=tir.Max(a=p, b=q), b=b) | tir.LE(a=tir.Max(a=p, b=q), b=b):
            yield from (
                term for side in (p, q) for term in _sides_at_most_zero(type(condition)(side, b))
            )
        case tir.LT(a=a, b=tir.Min(a=p, b=q)) | tir.LE(a=a, b=tir.Min(a=p, b=q)):
            yield from (
                term for side in (p, q) for term in _sides_at_most_zero(type(condition)(a, side))
            )
        case tir.LT(a=a, b=b) | tir.LE(a=a, b=b) | tir.EQ(a=a, b=b) if (
            a.dtype.family == "int" and not a.dtype.vector
        ):
            difference = poly.add(GENERAL.exact(a), GENERAL.exact(b), -1)
            if isinstance(condition, tir.LT):
                difference = poly.add(difference, poly.constant(1))
            yield difference, a.dtype
            if isinstance(condition, tir.EQ):
                yield poly.scaled(difference, -1), a.dtype
        case _:
            yield None


@entry_point
def detect_common_subexpr(expr: ExprLike, threshold: int) -> dict[PrimExpr, int]:
    """The number of occurrences of each computation that `expr` has at least `threshold` times.

    Leaves, loads, ramps, broadcasts, and calls with effects do not count as computations.
    """
    root = ops.convert(expr)
    least = ops.as_int(threshold)
    counts: dict[PrimExpr, int] = {root: 1}
    for node in reversed([n for n in walk(root) if isinstance(n, PrimExpr)]):
        for child in children(node):
            if isinstance(child, PrimExpr):
                counts[child] = counts.get(child, 0) + counts[node]
    impure = _impure(root)
    return {
        node: count
        for node, count in counts.items()
        if count >= least and node not in impure and not isinstance(node, _NO_COMPUTATION)
    }


_NO_COMPUTATION = (Var, tir.ConstExpr, BufferLoad, tir.Ramp, tir.Broadcast)


def _impure(root: PrimExpr) -> set[PrimExpr]:
    """The subexpressions whose evaluation may have effects."""
    impure: set[PrimExpr] = set()
    for node in walk(root):
        if isinstance(node, PrimExpr) and (
            (isinstance(node, tir.Call) and effect_of(node) > CallEffectKind.Pure)
            or any(child in impure for child in children(node) if isinstance(child, PrimExpr))
        ):
            impure.add(node)
    return impure
