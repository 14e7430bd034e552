"""Boxes of axes, and their division by conditions that are affine in one axis each."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from relaxpy.exec.kernel.nest.bounds import keeps_divisions
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    CmpExpr,
    IntImm,
    Not,
    Or,
    PrimExpr,
    Var,
)

Box = tuple[Axis, ...]
MAX_BOXES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Disjoint boxes where a condition holds and where it fails; together, all of the domain."""

    holds: tuple[Box, ...]
    fails: tuple[Box, ...]


def divide(condition: PrimExpr, box: Box, sizes: Container[Var]) -> Division | None:
    """`box` divided by `condition`, or None where the parts are no boxes, or too many.

    What is read from memory divides nothing: unlike indices, it wraps round, and may be NaN.
    """
    found = _divide(condition, box, sizes)
    if found is None or len(found.holds) + len(found.fails) > MAX_BOXES:
        return None
    return found


def conjuncts(condition: PrimExpr) -> Iterator[PrimExpr]:
    """The conditions that hold together where `condition` holds."""
    if type(condition) is And:
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    else:
        yield condition


def _divide(condition: PrimExpr, box: Box, sizes: Container[Var]) -> Division | None:
    match condition:
        case IntImm(value=value):
            return Division((box,), ()) if value else Division((), (box,))
        case Not(a=a):
            inner = _divide(a, box, sizes)
            return None if inner is None else Division(inner.fails, inner.holds)
        case Or(a=a, b=b):
            return _either(a, b, box, sizes)
        case And(a=a, b=b):
            return _both(a, b, box, sizes)
        case CmpExpr(a=a) if not a.dtype.is_int or any(True for _ in loads(condition)):
            return None
        case CmpExpr(a=a, b=b) if not keeps_divisions(condition, (as_poly(a) - as_poly(b)).expr()):
            return None
        case LT(a=a, b=b):
            return _at_least(as_poly(b) - as_poly(a) - 1, box, sizes)
        case LE(a=a, b=b):
            return _at_least(as_poly(b) - as_poly(a), box, sizes)
        case GT(a=a, b=b):
            return _at_least(as_poly(a) - as_poly(b) - 1, box, sizes)
        case GE(a=a, b=b):
            return _at_least(as_poly(a) - as_poly(b), box, sizes)
        case EQ(a=a, b=b):
            return _both(LE(a, b), LE(b, a), box, sizes)
        case NE(a=a, b=b):
            return _divide(Not(EQ(a, b)), box, sizes)
        case _:
            return None


def _both(a: PrimExpr, b: PrimExpr, box: Box, sizes: Container[Var]) -> Division | None:
    first = _divide(a, box, sizes)
    if first is None:
        return None
    holds: list[Box] = []
    fails = list(first.fails)
    for part in first.holds:
        second = _divide(b, part, sizes)
        if second is None:
            return None
        holds += second.holds
        fails += second.fails
    return Division(tuple(holds), tuple(fails))


def _either(a: PrimExpr, b: PrimExpr, box: Box, sizes: Container[Var]) -> Division | None:
    found = _both(Not(a), Not(b), box, sizes)
    return None if found is None else Division(found.fails, found.holds)


def _at_least(poly: IndexPoly, box: Box, sizes: Container[Var]) -> Division | None:
    """The division by `poly >= 0`."""
    if not any(a in {axis.var for axis in box} for a in poly.atoms()):
        if poly.is_at_least(0, sizes):
            return Division((box,), ())
        if (poly * -1).is_at_least(1, sizes):
            return Division((), (box,))
    found = affine(poly, {axis.var for axis in box})
    if found is None or len(found.coefficients) != 1:
        return None
    [(var, factor)] = found.coefficients.items()
    step = factor.constant
    if step is None:
        return None
    place = next(i for i, axis in enumerate(box) if axis.var is var)
    axis = box[place]
    cut = _cut(found, step)
    if step > 0:
        low, high = (
            replace(axis, stop=least(axis.stop, cut, sizes)),
            replace(axis, start=greatest(axis.start, cut, sizes)),
        )
    else:
        low, high = (
            replace(axis, start=greatest(axis.start, cut, sizes)),
            replace(axis, stop=least(axis.stop, cut, sizes)),
        )
    # `high` is where the condition holds, `low` where it fails.
    return Division(_nonempty(box, place, high, sizes), _nonempty(box, place, low, sizes))


def _cut(found: Affine, step: int) -> IndexPoly:
    """The first value from which on `step * v + offset >= 0` holds, or no longer holds."""
    offset = found.offset
    if step == 1:
        return offset * -1
    if step == -1:
        return offset + 1
    if step > 0:
        return as_poly(ops.floordiv((offset * -1 + (step - 1)).expr(), step))
    return as_poly(ops.floordiv(offset.expr(), -step)) + 1


def _nonempty(box: Box, place: int, axis: Axis, sizes: Container[Var]) -> tuple[Box, ...]:
    if is_empty(axis, sizes):
        return ()
    return ((*box[:place], axis, *box[place + 1 :]),)


def least(bound: PrimExpr, cut: IndexPoly, sizes: Container[Var]) -> PrimExpr:
    """The smaller of the two, decided where it can be."""
    if (cut - as_poly(bound)).is_at_least(0, sizes):
        return bound
    if (as_poly(bound) - cut).is_at_least(0, sizes):
        return cut.expr()
    return ops.minimum(ops.cast_to(bound, INT64), cut.expr())


def greatest(bound: PrimExpr, cut: IndexPoly, sizes: Container[Var]) -> PrimExpr:
    """The larger of the two, decided where it can be."""
    if (as_poly(bound) - cut).is_at_least(0, sizes):
        return bound
    if (cut - as_poly(bound)).is_at_least(0, sizes):
        return cut.expr()
    return ops.maximum(ops.cast_to(bound, INT64), cut.expr())


def is_point(axis: Axis) -> bool:
    """Whether the axis has exactly one value."""
    return (as_poly(axis.stop) - as_poly(axis.start)).same(1)


def is_empty(axis: Axis, sizes: Container[Var]) -> bool:
    """Whether the axis is proved to have no round."""
    return (as_poly(axis.start) - as_poly(axis.stop)).is_at_least(0, sizes)


def nonempty(axis: Axis, sizes: Container[Var]) -> PrimExpr | None:
    """The condition that `axis` has a round, or None where that is proved."""
    start, stop = as_poly(axis.start), as_poly(axis.stop)
    if (stop - start).is_at_least(1, sizes):
        return None
    return ops.convert(start.expr() < stop.expr())


def has_no_iteration(axis: Axis, sizes: Container[Var]) -> PrimExpr | None:
    """The condition that `axis` has no round, or None where that is disproved."""
    start, stop = as_poly(axis.start), as_poly(axis.stop)
    if (stop - start).is_at_least(1, sizes):
        return None
    return ops.convert(stop.expr() <= start.expr())


def keeps_first(part: Axis, whole: Axis, sizes: Container[Var]) -> bool:
    """Whether `part` of a divided axis is proved to have the first round of `whole`, if any."""
    if not as_poly(part.start).same(as_poly(whole.start)):
        return False
    if as_poly(part.stop).same(as_poly(whole.stop)):
        return True
    some = nonempty(part, sizes)
    return some is None or follows(some, (whole,), sizes)


def follows(test: PrimExpr, axes: Iterable[Axis], sizes: Container[Var]) -> bool:
    """Whether `test` is proved where each of `axes` has a round."""
    known = [some for axis in axes if (some := nonempty(axis, sizes)) is not None]
    analyzer = Analyzer()
    with analyzer.constraint_scope(ops.all_of(True, *known)):
        return analyzer.can_prove(test)


def may_be_empty(axis: Axis, sizes: Container[Var]) -> bool:
    """Whether `stop` could lie below `start`, as happens to parts of a divided axis."""
    return not (as_poly(axis.stop) - as_poly(axis.start)).is_at_least(0, sizes)
