"""Statements that accumulate, `C[i] = op(C[i], e)`, and pairs that find an arg-extreme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from relaxpy.exec.kernel.nest.bounds import is_one_to_one, may_fail
from relaxpy.exec.kernel.nest.nodes import Axis, Bind, Branch, Item, Store, loads
from relaxpy.exec.kernel.plan.parts import Access, Group, Part, Statement, access
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    Call,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from relaxpy.ir.tir.substitution import mentions, substitute

Combine: TypeAlias = Literal[
    "add", "mul", "min", "max", "and", "or", "bitwise_and", "bitwise_or", "bitwise_xor"
]
_NODES: dict[type[PrimExpr], Combine] = {
    Add: "add",
    Sub: "add",
    Mul: "mul",
    Min: "min",
    Max: "max",
    And: "and",
    Or: "or",
}
_CALLS: dict[str, Combine] = {
    "tir.bitwise_and": "bitwise_and",
    "tir.bitwise_or": "bitwise_or",
    "tir.bitwise_xor": "bitwise_xor",
}


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The target becomes `combine` of itself and `operand`."""

    combine: Combine
    operand: PrimExpr


def update_of(statement: Statement) -> Update | None:
    """How `statement` accumulates into its target, or None.

    What the target may decide alone is not asked where that could stop the program.
    """
    own = BufferLoad(statement.target, statement.indices)
    found = update_from(statement.value, own)
    if found is None or found.combine not in ("and", "or"):
        return found
    return None if may_fail(found.operand, statement.axes, ()) else found


def update_from(value: PrimExpr, own: BufferLoad) -> Update | None:
    """How `value` combines `own` with what does not read it, or None."""
    found = _update(value, own, {})
    if found is None or any(load is own for load in loads(found.operand)):
        return None
    return found


def _update(
    value: PrimExpr, own: BufferLoad, known: dict[PrimExpr, Update | None]
) -> Update | None:
    """`known` has what was found of parts: one may stand in many places."""
    if value not in known:
        known[value] = _update_of_sides(value, own, known)
    return known[value]


def _update_of_sides(
    value: PrimExpr, own: BufferLoad, known: dict[PrimExpr, Update | None]
) -> Update | None:
    sides = _sides(value)
    if sides is None:
        return None
    combine, left, right = sides
    if left is own:
        return Update(combine, _negated(right) if isinstance(value, Sub) else right)
    if right is own and not isinstance(value, Sub):
        return Update(combine, left)
    inner = _update(left, own, known)
    if inner is not None and inner.combine == combine:
        return Update(combine, _joined(value, inner.operand, right))
    if isinstance(value, Sub):
        return None
    inner = _update(right, own, known)
    if inner is not None and inner.combine == combine:
        return Update(combine, _joined(value, left, inner.operand))
    return None


def _sides(value: PrimExpr) -> tuple[Combine, PrimExpr, PrimExpr] | None:
    match value:
        case Min() | Max() if value.dtype.bits < 8 and not value.dtype.is_bool:
            # These have no minima and maxima of their own, only those of wider integers.
            return None
        case Add() | Sub() | Mul() | Min() | Max() | And():
            return _NODES[type(value)], value.a, value.b
        case Call(op=Op(name=name), args=(a, b)) if name in _CALLS:
            return _CALLS[name], a, b
        case _:
            return None


def _negated(value: PrimExpr) -> PrimExpr:
    return Sub(ops.const(0, value.dtype), value)


def _joined(value: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    if isinstance(value, Call):
        return Call(value.dtype, value.op, (left, right))
    node: type[PrimExpr] = type(value)
    return node(left, right)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class Order:
    """When a candidate replaces the best: it is greater (or less), or equal (`last`), or NaN.

    Where `by_place`, an equal one replaces it if it stands before it, or (`last`) after it.
    """

    maximum: bool
    last: bool
    nan_wins: bool
    by_place: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ArgExtreme:
    """`best` becomes the extreme of `operand` along `axis`, `place` the `position` it has there.

    Both keep what they held where no candidate is better than that.
    """

    best: Access
    best_indices: tuple[PrimExpr, ...]
    place: Access
    place_indices: tuple[PrimExpr, ...]
    operand: PrimExpr
    position: PrimExpr
    axis: Axis
    order: Order


def arg_extreme_of(group: Group) -> ArgExtreme | None:
    """The arg-extreme that `group` finds along one of its axes, or None."""
    found = _guarded_pair(group.items) or _selected_pair(group.items)
    if found is None:
        return None
    first, second = found
    for one, other in ((first, second), (second, first)):
        (condition, store, value), (full, place, index) = one, other
        best = BufferLoad(store.buffer, store.indices)
        order = _better(condition, value, best)
        if order is None or store.buffer.dtype.is_bool:
            continue
        if full is not condition:
            held = BufferLoad(place.buffer, place.indices)
            order = _by_place(order, condition, full, (value, best), (index, held))
        if order is not None:
            return _extreme(group, store, value, place, index, order)
    return None


def _extreme(
    group: Group,
    store: Store,
    value: PrimExpr,
    place: Store,
    index: PrimExpr,
    order: Order,
) -> ArgExtreme | None:
    variables = {a.var for a in group.axes}
    free = [a for a in group.axes if not any(mentions(i, {a.var}) for i in store.indices)]
    own = {store.buffer, place.buffer}
    if len(free) != 1 or any(mentions(i, {free[0].var}) for i in place.indices):
        return None
    if any(load.buffer in own for part in (value, index) for load in loads(part)):
        return None
    along = affine(index, {free[0].var})
    if store.buffer is place.buffer or along is None or mentions(along.offset.expr(), variables):
        return None
    if order.by_place and (along.constant(free[0].var) or 0) < 1:
        return None
    accesses = [access(one.buffer, one.indices, variables) for one in (store, place)]
    for one in accesses:
        maps = [m for m in one.maps if m is not None]
        used = {v for m in maps for v in m.coefficients}
        apart = len(maps) == len(one.maps) and is_one_to_one(maps, group.axes, ())
        if not apart or used != variables - {free[0].var}:
            return None
    best, where = accesses
    return ArgExtreme(
        best,
        store.indices,
        where,
        place.indices,
        value,
        index,
        free[0],
        order,
    )


Candidate: TypeAlias = tuple[PrimExpr, Store, PrimExpr]
"""When a store takes a new value, and that."""


def _guarded_pair(items: Sequence[Item]) -> tuple[Candidate, Candidate] | None:
    """`if better: best = value; place = index`."""
    match items:
        case [Branch(condition=condition, body=[Store() as first, Store() as second], orelse=[])]:
            return (condition, first, first.value), (condition, second, second.value)
        case _:
            return None


def _selected_pair(items: Sequence[Item]) -> tuple[Candidate, Candidate] | None:
    """Both stores take `Select(better, new, old)`, computed before either is performed."""
    match items:
        case [Bind() as v, Bind() as w, Store() as first, Store() as second]:
            bound: Mapping[Var, PrimExpr] = {v.var: v.value, w.var: w.value}
        case _:
            return None
    values = [substitute(store.value, bound) for store in (first, second)]
    news = []
    conditions = []
    for store, value in zip((first, second), values, strict=True):
        own = BufferLoad(store.buffer, store.indices)
        match value:
            case Select(condition=condition, true_value=yes, false_value=no) if no is own:
                news.append(yes)
                conditions.append(condition)
            case Select(condition=condition, true_value=yes, false_value=no) if yes is own:
                news.append(no)
                conditions.append(ops.logical_not(condition))
            case _:
                return None
    return (conditions[0], first, news[0]), (conditions[1], second, news[1])


def _by_place(
    order: Order,
    condition: PrimExpr,
    full: PrimExpr,
    values: tuple[PrimExpr, PrimExpr],
    places: tuple[PrimExpr, PrimExpr],
) -> Order | None:
    """The order where `full` adds to `condition` what becomes of equals, which their places decide.

    Each pair is a candidate's beside the best's.
    """
    match condition, full:
        case Not(a=strict), Not(a=Or(a=whole, b=And(a=EQ(a=x, b=y), b=tie) as both)):
            kept = True
        case strict, Or(a=whole, b=And(a=EQ(a=x, b=y), b=tie) as both):
            kept = False
        case _:
            return None
    if whole is not strict or isinstance(both, Or) or {x, y} != set(values):
        return None
    if order.last != kept:
        # Equals were decided before their places are asked.
        return order
    match tie:
        case LT(a=a, b=b) | GT(a=b, b=a) if {a, b} == set(places):
            # The one at the smaller place is kept, or is the candidate that wins.
            first_wins = (a is places[1]) == kept
            return replace(order, last=not first_wins, by_place=True)
        case _:
            return None


def _better(condition: PrimExpr, value: PrimExpr, best: BufferLoad) -> Order | None:
    """How `condition` says that `value` is better than `best`, or None if it does not."""
    match condition:
        case Not(a=inner):
            # "not worse" differs from "better" on ties and on NaN, which is never worse.
            found = _better(inner, best, cast("BufferLoad", value))
            return None if found is None else Order(found.maximum, not found.last, True)
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


def accumulates(part: Part) -> bool:
    """Whether the rounds of `part` may be taken in any order although they meet in one element."""
    if isinstance(part, Group):
        return arg_extreme_of(part) is not None
    return update_of(part) is not None
