"""Recognises argmax and argmin: pairs of stores of a max or min and its position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from relaxpy.exec.loops.nest.bounds import is_one_to_one
from relaxpy.exec.loops.nest.nodes import Axis, Bind, Branch, Item, Store, loads
from relaxpy.exec.loops.plan.statements import Access, Compound, access
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import EQ, GE, GT, LE, LT, And, Not, Or, PrimExpr, Select, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a candidate beats the best: greater (or less), equal (`last`), or NaN.

    With `by_position`, an equal candidate replaces the best only if its position is less, or with
    `last` if its position is greater.
    """

    maximum: bool
    last: bool
    nan_wins: bool
    by_position: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ArgExtreme:
    """`best` becomes the max or min of `operand` along `axis`, and `arg` its `position`.

    Both keep their values if no candidate is better.
    """

    best: Access
    arg: Access
    operand: PrimExpr
    position: PrimExpr
    axis: Axis
    order: Order


def arg_extreme_of(statement: Compound) -> ArgExtreme | None:
    """The argmax or argmin that `statement` finds along one of its axes, or None."""
    pair = _guarded_pair(statement.items) or _selected_pair(statement.items)
    if pair is None:
        return None
    for (condition, store, value), (full, arg_store, index) in (pair, pair[::-1]):
        best = BufferLoad(store.buffer, store.indices)
        order = _better(condition, value, best)
        if order is None or store.buffer.dtype.is_bool:
            continue
        if full is not condition:
            arg = BufferLoad(arg_store.buffer, arg_store.indices)
            order = _by_position(order, condition, full, (value, best), (index, arg))
        if order is not None:
            return _extreme(statement, store, value, arg_store, index, order)
    return None


def _extreme(
    statement: Compound,
    store: Store,
    value: PrimExpr,
    arg_store: Store,
    index: PrimExpr,
    order: Order,
) -> ArgExtreme | None:
    variables = {a.var for a in statement.axes}
    free = [a for a in statement.axes if not any(mentions(i, {a.var}) for i in store.indices)]
    targets = {store.buffer, arg_store.buffer}
    if len(targets) != 2 or len(free) != 1:
        return None
    [axis] = free
    if any(mentions(i, {axis.var}) for i in arg_store.indices):
        return None
    if any(load.buffer in targets for expr in (value, index) for load in loads(expr)):
        return None
    along = affine(index, {axis.var})
    if along is None or along.offset.mentions(variables):
        return None
    if order.by_position and (along.constant(axis.var) or 0) < 1:
        return None
    best, arg = (access(s.buffer, s.indices, variables) for s in (store, arg_store))
    for write in (best, arg):
        maps = [m for m in write.maps if m is not None]
        used = {v for m in maps for v in m.coefficients}
        distinct = len(maps) == len(write.maps) and is_one_to_one(maps, statement.axes, ())
        if not distinct or used != variables - {axis.var}:
            return None
    return ArgExtreme(best, arg, value, index, axis, order)


Candidate: TypeAlias = tuple[PrimExpr, Store, PrimExpr]
"""The condition under which a store stores a new value, the store, and the value."""


def _guarded_pair(items: Sequence[Item]) -> tuple[Candidate, Candidate] | None:
    """`if better: best = value; arg = index`."""
    match items:
        case [Branch(condition=condition, body=[Store() as first, Store() as second], orelse=[])]:
            return (condition, first, first.value), (condition, second, second.value)
        case _:
            return None


def _selected_pair(items: Sequence[Item]) -> tuple[Candidate, Candidate] | None:
    """`best, arg = Select(better, value, best), Select(better, index, arg)`."""
    match items:
        case [Bind() as v, Bind() as w, Store() as first, Store() as second]:
            bound: Mapping[Var, PrimExpr] = {v.var: v.value, w.var: w.value}
        case _:
            return None
    values = [substitute(store.value, bound) for store in (first, second)]
    news = []
    conditions = []
    for store, value in zip((first, second), values, strict=True):
        target = BufferLoad(store.buffer, store.indices)
        match value:
            case Select(condition=condition, true_value=yes, false_value=no) if no is target:
                news.append(yes)
                conditions.append(condition)
            case Select(condition=condition, true_value=yes, false_value=no) if yes is target:
                news.append(no)
                conditions.append(ops.logical_not(condition))
            case _:
                return None
    return (conditions[0], first, news[0]), (conditions[1], second, news[1])


def _by_position(
    order: Order,
    condition: PrimExpr,
    full: PrimExpr,
    values: tuple[PrimExpr, PrimExpr],
    positions: tuple[PrimExpr, PrimExpr],
) -> Order | None:
    """The order if `full` extends `condition` by a comparison of the positions of equal values.

    Each pair has the candidate's value or position and that of the best.
    """
    match condition, full:
        case Not(a=strict), Not(a=Or(a=whole, b=And(a=EQ(a=x, b=y), b=tie))):
            negated = True
        case strict, Or(a=whole, b=And(a=EQ(a=x, b=y), b=tie)):
            negated = False
        case _:
            return None
    if whole is not strict or {x, y} != set(values):
        return None
    if order.last != negated:
        # `condition` alone decides between equal values.
        return order
    match tie:
        case LT(a=a, b=b) | GT(a=b, b=a) if {a, b} == set(positions):
            # A negated test keeps the best at the smaller position.
            first_wins = (a is positions[1]) == negated
            return replace(order, last=not first_wins, by_position=True)
        case _:
            return None


def _better(condition: PrimExpr, value: PrimExpr, best: BufferLoad) -> Order | None:
    """The order in which `condition` states that `value` is better than `best`, or None."""
    match condition:
        case Not(a=inner):
            # "Not worse" differs from "better" for equal values and for NaN, which is never worse.
            worse = _better(inner, best, cast("BufferLoad", value))
            return None if worse is None else Order(worse.maximum, not worse.last, True)
        case GT(a=a, b=b) | LT(a=b, b=a) if a is value and b is best:
            return Order(True, False, False)
        case GE(a=a, b=b) | LE(a=b, b=a) if a is value and b is best:
            return Order(True, True, False)
        case LT(a=a, b=b) | GT(a=b, b=a) if a is value and b is best:
            return Order(False, False, False)
        case LE(a=a, b=b) | GE(a=b, b=a) if a is value and b is best:
            return Order(False, True, False)
        case _:
            return None
