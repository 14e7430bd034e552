"""Iteration domains as boxes of axes, split by conditions that are affine in one axis each."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from relaxpy.exec.loops.nest.bounds import keeps_divisions
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.machine.tuning import Plans
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import occurrences, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace

Box = tuple[Axis, ...]

_LARGE: Final = 1 << 62
"""A number to which a size cannot be added: the sum may wrap around."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A domain split into disjoint boxes, where a condition holds and where it fails."""

    holds: tuple[Box, ...]
    fails: tuple[Box, ...]


def split(condition: tir.PrimExpr, box: Box, shape_vars: Container[tir.Var]) -> Split | None:
    """Split `box` by `condition`, or return None if the results are not boxes, or too many.

    Conditions on loaded values do not split: unlike indices, these may wrap or be NaN. Nor do sums
    of scalar arguments, which may wrap, in the condition or in the bound that follows from it.
    """
    result = _split(condition, box, shape_vars)
    if result is None or len(result.holds) + len(result.fails) > Plans.BOXES:
        return None
    return result


def _split(condition: tir.PrimExpr, box: Box, shape_vars: Container[tir.Var]) -> Split | None:
    match condition:
        case tir.IntImm(value=value):
            return Split((box,), ()) if value else Split((), (box,))
        case tir.Not(a=a):
            negated = _split(a, box, shape_vars)
            return None if negated is None else Split(negated.fails, negated.holds)
        case tir.Or(a=a, b=b):
            return _either(a, b, box, shape_vars)
        case tir.And(a=a, b=b):
            return _both(a, b, box, shape_vars)
        case tir.CmpExpr(a=a) if not a.dtype.is_int or any(True for _ in loads(condition)):
            return None
        case tir.CmpExpr() if may_wrap(condition, box, shape_vars):
            return None
        case tir.CmpExpr(a=a, b=b) if not keeps_divisions(
            condition, (as_poly(a) - as_poly(b)).expr()
        ):
            return None
        case tir.LT(a=a, b=b):
            return _at_least(as_poly(b) - as_poly(a) - 1, box, shape_vars)
        case tir.LE(a=a, b=b):
            return _at_least(as_poly(b) - as_poly(a), box, shape_vars)
        case tir.GT(a=a, b=b):
            return _at_least(as_poly(a) - as_poly(b) - 1, box, shape_vars)
        case tir.GE(a=a, b=b):
            return _at_least(as_poly(a) - as_poly(b), box, shape_vars)
        case tir.EQ(a=a, b=b):
            return _both(tir.LE(a, b), tir.LE(b, a), box, shape_vars)
        case tir.NE(a=a, b=b):
            return _split(tir.Not(tir.EQ(a, b)), box, shape_vars)
        case _:
            return None


def _both(
    a: tir.PrimExpr, b: tir.PrimExpr, box: Box, shape_vars: Container[tir.Var]
) -> Split | None:
    first = _split(a, box, shape_vars)
    if first is None:
        return None
    holds: list[Box] = []
    fails = list(first.fails)
    for held in first.holds:
        second = _split(b, held, shape_vars)
        if second is None:
            return None
        holds += second.holds
        fails += second.fails
    return Split(tuple(holds), tuple(fails))


def _either(
    a: tir.PrimExpr, b: tir.PrimExpr, box: Box, shape_vars: Container[tir.Var]
) -> Split | None:
    neither = _both(tir.Not(a), tir.Not(b), box, shape_vars)
    return None if neither is None else Split(neither.fails, neither.holds)


def _at_least(poly: IndexPoly, box: Box, shape_vars: Container[tir.Var]) -> Split | None:
    """Split `box` by `poly >= 0`."""
    if not any(a in {axis.var for axis in box} for a in poly.atoms()):
        if poly.is_at_least(0, shape_vars):
            return Split((box,), ())
        if (poly * -1).is_at_least(1, shape_vars):
            return Split((), (box,))
    linear = affine(poly, {axis.var for axis in box})
    if linear is None or len(linear.coefficients) != 1:
        return None
    [(var, factor)] = linear.coefficients.items()
    step = factor.constant
    if step is None:
        return None
    position = next(i for i, axis in enumerate(box) if axis.var is var)
    axis = box[position]
    cut, terms = _cut(linear.offset, step), linear.offset.terms
    if any(abs(factor) >= _LARGE for factor in terms.values()):
        return None
    if may_wrap(cut.expr(), box, shape_vars):
        return None
    below = replace(axis, stop=min_bound(axis.stop, cut, shape_vars))
    if any(len(monomial) > 2 for monomial in terms):
        # Such a product may wrap around, but no index may be below the axis.
        start = ops.maximum(ops.cast_to(axis.start, INT64), cut.expr())
    else:
        start = max_bound(axis.start, cut, shape_vars)
    above = replace(axis, start=start)
    holds, fails = (above, below) if step > 0 else (below, above)
    return Split(*(_nonempty(box, position, part, shape_vars) for part in (holds, fails)))


def may_wrap(expr: tir.PrimExpr, axes: Iterable[Axis], shape_vars: Container[tir.Var]) -> bool:
    """True if a sum, product or cast in `expr` is of a scalar argument that is as wide."""
    known = {axis.var for axis in axes}
    scalars = [
        node
        for node in walk(expr)
        if isinstance(node, tir.Var) and node not in known and node not in shape_vars
    ]
    return bool(scalars) and any(
        scalar.dtype.bits >= node.dtype.bits and mentions(node, {scalar})
        for node in occurrences(expr, tir.Add, tir.Sub, tir.Mul, tir.Cast)
        for scalar in scalars
    )


def _cut(offset: IndexPoly, step: int) -> IndexPoly:
    """The value of v at which `step * v + offset >= 0` begins to hold, or ceases to hold."""
    if step == 1:
        return offset * -1
    if step == -1:
        return offset + 1
    if step > 0:
        return as_poly((offset * -1 + (step - 1)).expr() // step)
    return as_poly(offset.expr() // -step) + 1


def _nonempty(
    box: Box, position: int, axis: Axis, shape_vars: Container[tir.Var]
) -> tuple[Box, ...]:
    """`box` with `axis` at `position`, unless that is provably empty."""
    if is_empty(axis, shape_vars):
        return ()
    return ((*box[:position], axis, *box[position + 1 :]),)


def min_bound(bound: tir.PrimExpr, cut: IndexPoly, shape_vars: Container[tir.Var]) -> tir.PrimExpr:
    """The minimum of the two, simplified if one is provably smaller."""
    if (cut - as_poly(bound)).is_at_least(0, shape_vars):
        return bound
    if (as_poly(bound) - cut).is_at_least(0, shape_vars):
        return cut.expr()
    return ops.minimum(ops.cast_to(bound, INT64), cut.expr())


def max_bound(bound: tir.PrimExpr, cut: IndexPoly, shape_vars: Container[tir.Var]) -> tir.PrimExpr:
    """The maximum of the two, simplified if one is provably larger."""
    if (as_poly(bound) - cut).is_at_least(0, shape_vars):
        return bound
    if (cut - as_poly(bound)).is_at_least(0, shape_vars):
        return cut.expr()
    return ops.maximum(ops.cast_to(bound, INT64), cut.expr())


def is_point(axis: Axis) -> bool:
    """True if the axis has exactly one value."""
    start, stop = axis.start, axis.stop
    if isinstance(start, tir.IntImm) and isinstance(stop, tir.IntImm):
        return stop.value - start.value == 1
    return axis.extent.same(1)


def is_empty(axis: Axis, shape_vars: Container[tir.Var]) -> bool:
    """True if the axis is provably empty."""
    return (axis.extent * -1).is_at_least(0, shape_vars)


def tests_within(axes: Sequence[Axis], serial: Sequence[Axis]) -> tuple[tir.PrimExpr, ...]:
    """The conditions that an iteration of the loops `serial` is within the bounds of `axes`."""
    own = {axis.var: axis for axis in axes}
    tests: list[tir.PrimExpr] = []
    for outer in serial:
        axis, var = own.get(outer.var, outer), outer.var
        if axis is outer:
            continue
        start, stop = (ops.cast_to(bound, var.dtype) for bound in (axis.start, axis.stop))
        if is_point(axis):
            tests.append(ops.convert(var.equal(start)))
            continue
        if not as_poly(axis.start).same(as_poly(outer.start)):
            tests.append(ops.convert(var >= start))
        if not as_poly(axis.stop).same(as_poly(outer.stop)):
            tests.append(ops.convert(var < stop))
    return tuple(tests)


def nonempty_condition(axis: Axis, shape_vars: Container[tir.Var]) -> tir.PrimExpr | None:
    """The condition that `axis` is not empty, or None if that is proved."""
    if axis.extent.is_at_least(1, shape_vars):
        return None
    return ops.convert(as_poly(axis.start).expr() < as_poly(axis.stop).expr())


def empty_condition(axis: Axis, shape_vars: Container[tir.Var]) -> tir.PrimExpr | None:
    """The condition that `axis` is empty, or None if that is disproved."""
    if axis.extent.is_at_least(1, shape_vars):
        return None
    return ops.convert(as_poly(axis.stop).expr() <= as_poly(axis.start).expr())


def is_implied(test: tir.PrimExpr, axes: Iterable[Axis], shape_vars: Container[tir.Var]) -> bool:
    """True if `test` provably holds if none of `axes` is empty."""
    from relaxpy.ir.arith.tvm.analyzer import Analyzer  # few domains need it

    conditions = (nonempty_condition(axis, shape_vars) for axis in axes)
    assumed = [condition for condition in conditions if condition is not None]
    analyzer = Analyzer()
    with analyzer.constraint_scope(ops.all_of(True, *assumed)):
        return analyzer.can_prove(test)
