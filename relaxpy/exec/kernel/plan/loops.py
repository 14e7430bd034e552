"""Loops as they would be written by hand: split ones put together, fused ones taken apart.

What schedules do to loops changes no order of rounds here: a loop directly inside another one is
joined with it, a loop over a product becomes one for each factor.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from relaxpy.exec.kernel.nest.bounds import keeps_divisions, may_fail
from relaxpy.exec.kernel.nest.domain import conjuncts, divide, keeps_first
from relaxpy.exec.kernel.nest.nodes import (
    Axis,
    Branch,
    Item,
    Loop,
    Nest,
    Repeat,
    every,
    expressions,
    jumps,
    mapped,
)
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly, quotient
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad, Range
from relaxpy.ir.tir.expr import (
    Add,
    BinaryOpExpr,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
)
from relaxpy.ir.tir.substitution import mentions, substitute


def tidy(nest: Nest, sizes: Container[Var]) -> Nest:
    """`nest` with split loops joined, fused loops taken apart, and indices made plain."""
    return replace(nest, items=_Loops(sizes).items(nest.items, ()))


class _Loops:
    def __init__(self, sizes: Container[Var]) -> None:
        self.sizes = sizes

    def items(self, items: tuple[Item, ...], outer: tuple[Axis, ...]) -> tuple[Item, ...]:
        return tuple(self._item(item, outer) for item in items)

    def _item(self, item: Item, outer: tuple[Axis, ...]) -> Item:
        match item:
            case Loop():
                return self._loop(item, outer)
            case Branch(body=body, orelse=orelse):
                yes, no = self.items(body, outer), self.items(orelse, outer)
                return replace(item, body=yes, orelse=no)
            case _:
                return item

    def _loop(self, loop: Loop, outer: tuple[Axis, ...]) -> Item:
        joined = loop
        while (found := _joined(joined, self.sizes)) is not None:
            joined = found
        joined = self._narrowed(joined, outer)
        axes = (*outer, joined.axis)
        plain = self._plain(joined, axes)
        apart = self._apart(plain, outer)
        if apart is not None:
            return self._item(apart, outer)
        return replace(plain, body=self.items(plain.body, axes))

    def _narrowed(self, loop: Loop, outer: tuple[Axis, ...]) -> Loop:
        """`loop` without the condition on it that encloses its body."""
        match loop.body:
            case (Branch(condition=condition, body=body, orelse=(), first=first),) if not first:
                pass
            case _:
                return loop
        axis, left = loop.axis, []
        variables = {a.var for a in outer}
        stops = False
        for test in conjuncts(condition):
            held = None
            stops |= may_fail(test, (*outer, loop.axis), self.sizes)
            # What may stop the program is asked in all rounds that the tests before it leave.
            if not (stops or mentions(test, variables)):
                found = divide(test, (axis,), self.sizes)
                held = found.holds if found is not None and len(found.holds) == 1 else None
            if held is None:
                left.append(test)
            else:
                [(axis,)] = held
        inner: tuple[Item, ...] = (Branch(ops.all_of(*left), body),) if left else body
        return Loop(axis, inner)

    def _plain(self, loop: Loop, axes: Sequence[Axis]) -> Loop:
        """`loop` with indices as simple as the ranges of `axes` and of the loops inside allow."""
        if not any(_divides(e) for i in loop.body for e in _all(i)):
            return loop
        return replace(loop, body=_simpler(loop.body, axes, self.sizes))

    def _apart(self, loop: Loop, outer: tuple[Axis, ...]) -> Loop | None:
        """A loop for each digit where the body asks only for those, as `f // m` and `f % m`."""
        axis = loop.axis
        if not as_poly(axis.start).same(0) or any(True for _ in jumps(loop.body)):
            return None
        extents = _chain(as_poly(axis.stop), _cuts(loop, axis.var))
        if extents is None:
            return None
        kind = axis.var.dtype
        digits = [
            Axis(axis.var.renamed(axis.var.name), ops.const(0, kind), ops.cast_to(e.expr(), kind))
            for e in extents
        ]
        whole: PrimExpr = ops.const(0, kind)
        for digit in digits:
            whole = ops.add(ops.mul(whole, digit.stop), digit.var)
        firsts = _firsts(loop.body, [axis], digits, self.sizes)
        if firsts is None:
            return None
        body = tuple(_substituted(i, {axis.var: whole}) for i in firsts)
        found: Item = Loop(digits[-1], body)
        for digit in reversed(digits[:-1]):
            found = Loop(digit, (found,))
        assert isinstance(found, Loop)
        innermost = self._plain(found, [*outer, digits[0]])
        variables = {d.var for d in digits}
        bent = (e for i in innermost.body for e in _all(i))
        return None if any(_divides(e, variables) for e in bent) else innermost


def _simpler(
    items: tuple[Item, ...], axes: Sequence[Axis], sizes: Container[Var]
) -> tuple[Item, ...]:
    """`items` with simpler indices and conditions, each by what the loops around it run through.

    What a loop runs through says nothing outside of it, where it may have no round.
    """
    change = _Simpler(analyzer_of(axes), axes, sizes).expr

    def changed(item: Item) -> Item:
        match item:
            case Loop(axis=axis, body=body):
                bare = mapped(Loop(axis, ()), change)
                assert isinstance(bare, Loop)
                return replace(bare, body=_simpler(body, (*axes, axis), sizes))
            case _:
                return mapped(item, change)

    return tuple(map(changed, items))


@dataclass(frozen=True, slots=True)
class _Simpler:
    """Simplifies divisions of what loops and sizes decide.

    Other variables are data: with a remainder written out, what fitted their datatype may overflow.
    """

    analyzer: Analyzer
    axes: Sequence[Axis]
    sizes: Container[Var]

    def expr(self, expr: PrimExpr) -> PrimExpr:
        """`expr` with simpler indices and conditions on loops."""
        return cast("PrimExpr", rewrite(expr, self._rule))

    def _rule(self, node: Node) -> Node | None:
        match node:
            case FloorDiv() | FloorMod() if _is_index(node) and self._is_known(node):
                found = ops.cast_to(self.analyzer.simplify(node), node.dtype)
                return found if keeps_divisions(node, found, self.axes) else None
            case _:
                return None

    def _is_known(self, expr: PrimExpr) -> bool:
        loops = {axis.var for axis in self.axes}
        return all(
            part in loops or part in self.sizes for part in walk(expr) if isinstance(part, Var)
        )


def analyzer_of(axes: Sequence[Axis]) -> Analyzer:
    """An analyzer that knows what the loops `axes` run through."""
    analyzer = Analyzer()
    for axis in axes:
        extent = (as_poly(axis.stop) - as_poly(axis.start)).expr()
        kind = axis.var.dtype
        bounds = Range.from_min_extent(axis.start, ops.cast_to(extent, kind))
        analyzer.bind(axis.var, bounds)
    return analyzer


def _is_index(expr: PrimExpr) -> bool:
    """Whether only loops and sizes decide `expr`, so that it does not overflow."""
    kinds = (Var, IntImm, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, Cast)
    return all(
        isinstance(part, kinds) and part.dtype.family == "int" and part.dtype.bits >= 32
        for part in walk(expr)
    )


def _divides(expr: PrimExpr, variables: Container[Var] | None = None) -> bool:
    """Whether a quotient or remainder (of one of `variables`) occurs in `expr`."""
    return any(
        isinstance(part, (FloorDiv, FloorMod)) and (variables is None or mentions(part, variables))
        for part in walk(expr)
    )


def _all(item: Item) -> Iterator[PrimExpr]:
    """The expressions of `item` and of all inside it."""
    return (e for inner in every((item,)) for e in expressions(inner))


# ---- joining


def _joined(loop: Loop, sizes: Container[Var]) -> Loop | None:
    """One loop for `loop` and the one that is its body, if only their joint place matters."""
    match loop.body:
        case (Loop(axis=inner, body=body),) if not any(True for _ in jumps(body)):
            pass
        case _:
            return None
    if mentions(inner.stop, {loop.axis.var}):
        return None
    joint = joint_axis(loop.axis, inner, sizes)
    if joint is None:
        return None
    firsts = _firsts(body, [loop.axis, inner], [joint.axis], sizes)
    if firsts is None:
        return None
    values = {inner.var: joint.inner}
    found = tuple(mapped(_substituted(i, values), canonical) for i in firsts)
    used = [e for i in found for e in _all(i)]
    if any(mentions(e, {loop.axis.var}) for e in used):
        return None
    if not any(mentions(e, {joint.axis.var}) for e in used):
        return None
    return Loop(joint.axis, found)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """One axis for two; `inner` is the inner variable in terms of the new and the outer one."""

    axis: Axis
    inner: PrimExpr


def joint_axis(outer: Axis, inner: Axis, sizes: Container[Var]) -> Joint | None:
    """The axis of `outer * size + inner`, or None where they do not begin at 0.

    There is none either where both extents may be negative: their product is then positive.
    """
    if not (as_poly(outer.start).same(0) and as_poly(inner.start).same(0)):
        return None
    if not any(as_poly(axis.stop).is_at_least(0, sizes) for axis in (outer, inner)):
        return None
    kind = max(outer.var.dtype, inner.var.dtype, key=lambda dtype: dtype.bits)
    size = as_poly(inner.stop)
    var = Var(_common(outer.var.name, inner.var.name), kind)
    stop = ops.cast_to((as_poly(outer.stop) * size).expr(), kind)
    before = ops.mul(ops.cast_to(outer.var, kind), ops.cast_to(size.expr(), kind))
    own = ops.cast_to(ops.sub(var, before), inner.var.dtype)
    return Joint(Axis(var, ops.const(0, kind), stop), own)


def _common(a: str, b: str) -> str:
    """The name that two parts of a loop have in common, as `i` of `i_0` and `i_1`."""
    count = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return a[:count].rstrip("_") or a


def canonical(expr: PrimExpr) -> PrimExpr:
    """`expr` with its index arithmetic as sums of products, in which equal terms have met."""

    def rule(node: Node) -> Node | None:
        if not (isinstance(node, PrimExpr) and _is_index(node)):
            return None
        found = as_poly(node).expr()
        low, high = ops.int_range(node.dtype)
        if isinstance(found, IntImm) and not low <= found.value <= high:
            return None  # it wraps when it is evaluated
        return ops.cast_to(found, node.dtype)

    return cast("PrimExpr", rewrite(expr, rule))


def _substituted(item: Item, values: Mapping[Var, PrimExpr]) -> Item:
    return mapped(item, lambda expr: substitute(expr, values))


def _firsts(
    items: tuple[Item, ...], old: Sequence[Axis], new: Sequence[Axis], sizes: Container[Var]
) -> tuple[Item, ...] | None:
    """`items` where the first round of all the axes `old` is that of the axes `new`.

    None where some of these axes begin a block in a round that is gone.
    """
    gone = {a.var: a for a in old}
    starts = {ops.convert(a.var.equal(a.start)) for a in old}
    begins = [ops.convert(a.var.equal(a.start)) for a in new]
    branches = (i for i in every(items) if isinstance(i, Branch))
    for branch in branches:
        own = [a for a in branch.first if a.var in gone]
        if not all(keeps_first(gone[a.var], a, sizes) for a in own):
            return None

    def changed(item: Item) -> Item:
        match item:
            case Loop(body=body) | Repeat(body=body):
                return replace(item, body=tuple(map(changed, body)))
            case Branch(condition=condition, body=body, orelse=orelse, first=first):
                yes, no = tuple(map(changed, body)), tuple(map(changed, orelse))
                left = tuple(a for a in first if a.var not in gone)
                if len(left) == len(first):
                    return Branch(condition, yes, no, first)
                tests = list(conjuncts(condition))
                if starts <= set(tests):
                    tests = [*begins, *(test for test in tests if test not in starts)]
                return Branch(ops.all_of(*tests), yes, no, (*left, *new))
            case _:
                return item

    return tuple(map(changed, items))


# ---- taking apart


def _cuts(loop: Loop, var: Var) -> list[IndexPoly]:
    """The places at which the digits of `var` begin that the body of `loop` asks for."""
    parts = (part for item in loop.body for expr in _all(item) for part in walk(expr))
    found = (_place(part, var) for part in parts if isinstance(part, (FloorDiv, FloorMod)))
    return [place for place in found if place is not None]


def _place(part: BinaryOpExpr, var: Var) -> IndexPoly | None:
    """Where the quotient or remainder `part` cuts `var`, or None if it is none of `var`."""
    if mentions(part.b, {var}):
        return None
    lowest = _lowest(part.a, var)
    if lowest is not None:
        return lowest * as_poly(part.b)
    linear = affine(part.a, {var})
    if linear is not None and linear.coefficients:
        # Digits of k * var + offset begin where those of var do, if k divides the place.
        return quotient(as_poly(part.b), linear.coefficients[var])
    return None


def _lowest(value: PrimExpr, var: Var) -> IndexPoly | None:
    """The place of the last digit of `value`, which is made of digits of `var`; or None."""
    match value:
        case Cast(value=inner):
            return _lowest(inner, var)
        case FloorDiv(a=a, b=b):
            inner_place = _lowest(a, var)
            return None if inner_place is None else inner_place * as_poly(b)
        case _:
            return as_poly(1) if value is var else None


def _chain(extent: IndexPoly, cuts: Sequence[IndexPoly]) -> list[IndexPoly] | None:
    """The sizes of the digits, largest place first, or None where a place does not divide."""
    found: list[IndexPoly] = []
    below = as_poly(1)
    for cut in [*sorted(cuts, key=_largest_term), extent]:
        size = quotient(cut, below)
        if size is None:
            return None
        if not size.same(1):
            found.insert(0, size)
        below = cut
    return found if len(found) > 1 else None


def _largest_term(size: IndexPoly) -> tuple[int, ...]:
    """The degree and the factor of the term that counts most; none of 0."""
    return max(((len(monomial), factor) for monomial, factor in size.terms.items()), default=())


# ---- whole buffers in order


def place_in_order(
    load: BufferLoad, axes: Sequence[Axis], variables: Container[Var]
) -> Affine | None:
    """The place of `load` among all elements of its buffer, where that is affine and inside it."""
    analyzer = analyzer_of(axes)
    place: PrimExpr = ops.const(0, INT64)
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        low, high = ops.convert(index >= 0), ops.convert(index < size)
        if not (analyzer.can_prove(low) and analyzer.can_prove(high)):
            return None
        place = ops.add(ops.mul(place, ops.cast_to(size, INT64)), ops.cast_to(index, INT64))
    found = analyzer.simplify(place)
    return affine(found, variables) if keeps_divisions(place, found, axes) else None
