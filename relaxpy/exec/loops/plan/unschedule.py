"""Undoes the transformations of schedules: coalesces split loops, and splits fused loops.

The order of iterations does not change: two perfectly nested loops become one, or a loop over a
product becomes one loop for each factor.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, cast

from relaxpy.exec.loops.nest.bounds import keeps_divisions, may_fail
from relaxpy.exec.loops.nest.domain import may_wrap, split
from relaxpy.exec.loops.nest.nodes import (
    Axis,
    Branch,
    Item,
    Loop,
    Nest,
    expressions,
    jumps,
    map_expressions,
    substituted,
    walk_items,
)
from relaxpy.exec.machine.tuning import Plans
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly, quotient
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
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
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.analyzer import Analyzer


def normalise_loops(nest: Nest, shape_vars: Container[Var]) -> Nest:
    """`nest` with split loops coalesced, fused loops split, and indices simplified."""
    found: list[Item] = []
    for item in nest.items:
        divides = any(_divides(expr) for expr in _all_expressions(item))
        found += _Loops(shape_vars, divides=divides).items((item,), ())
    return replace(nest, items=tuple(found))


class _Loops:
    """Normalises loops, with bodies in which quotients and remainders occur if it `divides`."""

    def __init__(self, shape_vars: Container[Var], *, divides: bool) -> None:
        self.shape_vars, self.divides = shape_vars, divides

    def items(
        self, items: tuple[Item, ...], outer: tuple[Axis, ...], *, simplified: bool = False
    ) -> tuple[Item, ...]:
        found: list[Item] = []
        for item in items:
            found += self._item(item, outer, simplified=simplified)
        return tuple(found)

    def _item(self, item: Item, outer: tuple[Axis, ...], *, simplified: bool) -> tuple[Item, ...]:
        """`item` normalised; if `simplified`, it was already simplified in an enclosing loop."""
        match item:
            case Loop():
                return self._loop(item, outer, simplified=simplified)
            case Branch(body=body, orelse=orelse):
                yes, no = self.items(body, outer), self.items(orelse, outer)
                return (replace(item, body=yes, orelse=no),)
            case _:
                return (item,)

    def _loop(self, loop: Loop, outer: tuple[Axis, ...], *, simplified: bool) -> tuple[Item, ...]:
        before = loop
        while (joint := _coalesced(loop, outer, self.shape_vars)) is not None:
            loop = joint
        loop = self._narrowed(loop, outer)
        axes = (*outer, loop.axis)
        if self.divides:
            if not (simplified and loop is before):
                loop = self._simplified(loop, axes)
            digits = self._split(loop, outer)
            if digits is not None:
                return self._item(digits, outer, simplified=True)
            if (parts := self._peeled(loop, outer)) is not None:
                whole, rest = parts
                rest = self._simplified(rest, (*outer, rest.axis))
                return self.items((whole, rest), outer, simplified=True)
        return (replace(loop, body=self.items(loop.body, axes, simplified=True)),)

    def _peeled(self, loop: Loop, outer: tuple[Axis, ...]) -> tuple[Loop, Loop] | None:
        """A loop split into one for each digit and an epilogue for the few remaining iterations.

        A body without remainders has the same elements, or a mask, for long stretches: it stays
        unchanged.
        """
        axis = loop.axis
        exprs = (expr for item in loop.body for expr in _all_expressions(item))
        remainders = (node for expr in exprs for node in occurrences(expr, FloorMod))
        if not any(mentions(node, {axis.var}) for node in remainders):
            return None
        extent, weights = as_poly(axis.stop).constant, _split_points(loop, axis.var)
        known = [weight.constant for weight in weights]
        if extent is None or not known or any(n is None or n < 1 for n in known):
            return None
        largest = max(n for n in known if n is not None)
        count = extent // largest * largest
        if count == extent or extent < Plans.PEELED * largest:
            return None
        kind = axis.var.dtype
        whole = self._split(Loop(replace(axis, stop=ops.const(count, kind)), loop.body), outer)
        if whole is None:
            return None
        var = axis.var.renamed(axis.var.name)
        index = ops.const(count, kind) + var
        rest = Axis(var, ops.const(0, kind), ops.const(extent - count, kind))
        return whole, Loop(rest, substituted(loop.body, {axis.var: index}))

    def _narrowed(self, loop: Loop, outer: tuple[Axis, ...]) -> Loop:
        """`loop` with a condition on its variable around the body turned into bounds."""
        match loop.body:
            case (Branch(condition=condition, body=body, orelse=()),):
                pass
            case _:
                return loop
        axis, remaining = loop.axis, []
        variables = {a.var for a in outer}
        stops = False
        for test in conjuncts(condition):
            # A test that may stop the program must see all iterations that earlier tests leave.
            stops |= may_fail(test, (*outer, loop.axis), self.shape_vars)
            fixed = stops or mentions(test, variables)
            boxes = None if fixed else split(test, (axis,), self.shape_vars)
            if boxes is None or len(boxes.holds) != 1:
                remaining.append(test)
            else:
                [(axis,)] = boxes.holds
        narrowed: tuple[Item, ...] = (Branch(ops.all_of(*remaining), body),) if remaining else body
        return Loop(axis, narrowed)

    def _simplified(self, loop: Loop, axes: Sequence[Axis]) -> Loop:
        """`loop` with indices simplified by the bounds of `axes` and of the loops inside."""
        if not any(_divides(e) for i in loop.body for e in _all_expressions(i)):
            return loop
        return replace(loop, body=_simpler(loop.body, axes, self.shape_vars))

    def _split(self, loop: Loop, outer: tuple[Axis, ...]) -> Loop | None:
        """A loop for each digit if the body only uses digits, as `f // m` and `f % m`."""
        axis = loop.axis
        if not as_poly(axis.start).same(0) or any(True for _ in jumps(loop.body)):
            return None
        extents = _digit_extents(as_poly(axis.stop), _split_points(loop, axis.var))
        if extents is None:
            return None
        kind = axis.var.dtype
        digits = [
            Axis(axis.var.renamed(axis.var.name), ops.const(0, kind), ops.cast_to(e.expr(), kind))
            for e in extents
        ]
        joint_index: PrimExpr = ops.const(0, kind)
        for digit in digits:
            joint_index = joint_index * digit.stop + digit.var
        nest = Loop(digits[-1], substituted(loop.body, {axis.var: joint_index}))
        for digit in reversed(digits[:-1]):
            nest = Loop(digit, (nest,))
        nest = self._simplified(nest, [*outer, digits[0]])
        variables = {d.var for d in digits}
        exprs = (e for i in nest.body for e in _all_expressions(i))
        return None if any(_divides(e, variables) for e in exprs) else nest


def _simpler(
    items: tuple[Item, ...], axes: Sequence[Axis], shape_vars: Container[Var]
) -> tuple[Item, ...]:
    """`items` with indices and conditions simplified by the bounds of the enclosing loops.

    The bounds of a loop only hold inside the loop, which may be empty.
    """
    change = _Simpler(axes, shape_vars).expr

    def changed(item: Item) -> Item:
        match item:
            case Loop(axis=axis, body=body):
                header = map_expressions(Loop(axis, ()), change)
                assert isinstance(header, Loop)
                return replace(header, body=_simpler(body, (*axes, axis), shape_vars))
            case _:
                return map_expressions(item, change)

    return tuple(map(changed, items))


@dataclass(frozen=True)
class _Simpler:
    """Simplifies divisions of expressions over loop variables and `shape_vars`.

    Other variables are data: a simplified expression may overflow their datatype.
    """

    axes: Sequence[Axis]
    shape_vars: Container[Var]

    @late_property
    def _analyzer(self) -> Analyzer:
        return analyzer_of(self.axes)

    def expr(self, expr: PrimExpr) -> PrimExpr:
        """`expr` with simpler indices and conditions on loops."""
        return cast("PrimExpr", rewrite(expr, self._rule)) if _divides(expr) else expr

    def _rule(self, node: Node) -> Node | None:
        match node:
            case FloorDiv() | FloorMod() if _is_index(node) and self._is_known(node):
                simple = ops.cast_to(self._analyzer.simplify(node), node.dtype)
                return simple if keeps_divisions(node, simple, self.axes) else None
            case _:
                return None

    def _is_known(self, expr: PrimExpr) -> bool:
        loops = {axis.var for axis in self.axes}
        return all(
            node in loops or node in self.shape_vars for node in walk(expr) if isinstance(node, Var)
        )


def analyzer_of(axes: Sequence[Axis]) -> Analyzer:
    """An analyzer with the bounds of the loops `axes`."""
    from relaxpy.ir.arith.tvm.analyzer import Analyzer  # few plans need it

    analyzer = Analyzer()
    for axis in axes:
        extent = ops.cast_to(axis.extent.expr(), axis.var.dtype)
        analyzer.bind(axis.var, Range.from_min_extent(axis.start, extent))
    return analyzer


def _is_index(expr: PrimExpr) -> bool:
    """True if `expr` is index arithmetic, which does not overflow."""
    kinds = (Var, IntImm, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, Cast)
    return all(
        isinstance(node, kinds) and node.dtype.family == "int" and node.dtype.bits >= 32
        for node in walk(expr)
    )


def _divides(expr: PrimExpr, variables: Container[Var] | None = None) -> bool:
    """True if a quotient or remainder (of one of `variables`) occurs in `expr`."""
    return any(
        variables is None or mentions(node, variables)
        for node in occurrences(expr, FloorDiv, FloorMod)
    )


def _all_expressions(item: Item) -> Iterator[PrimExpr]:
    """The expressions of `item` and of the items inside it."""
    return (e for inner in walk_items((item,)) for e in expressions(inner))


# ---- coalescing


def _coalesced(loop: Loop, outer: tuple[Axis, ...], shape_vars: Container[Var]) -> Loop | None:
    """One loop for `loop` and the loop that is its body, if the body only uses the joint index."""
    match loop.body:
        case (Loop(axis=inner, body=body),) if not any(True for _ in jumps(body)):
            pass
        case _:
            return None
    if mentions(inner.stop, {loop.axis.var}):
        return None
    exprs = [e for item in body for e in _all_expressions(item)]
    indices = (i for e in exprs for load in occurrences(e, BufferLoad) for i in load.indices)
    for expr in (*exprs, *indices):
        if mentions(expr, {loop.axis.var}) and not mentions(expr, {inner.var}):
            return None
    joint = coalesced_axis(loop.axis, inner, shape_vars)
    if joint is None:
        return None
    axes = (
        *outer,
        loop.axis,
        joint.axis,
        *(i.axis for i in walk_items(body) if isinstance(i, Loop)),
    )
    changed: dict[PrimExpr, PrimExpr] = {}

    def change(expr: PrimExpr) -> PrimExpr:
        if expr not in changed:
            changed[expr] = canonical(substitute(expr, {inner.var: joint.inner}), axes, shape_vars)
        return changed[expr]

    if any(mentions(change(e), {loop.axis.var}) for e in exprs):
        return None
    if not any(mentions(change(e), {joint.axis.var}) for e in exprs):
        return None
    return Loop(joint.axis, tuple(map_expressions(item, change) for item in body))


@dataclass(frozen=True, slots=True, eq=False)
class Coalesced:
    """An axis for two; `inner` is the inner variable in terms of the new and the outer one."""

    axis: Axis
    inner: PrimExpr


def coalesced_axis(outer: Axis, inner: Axis, shape_vars: Container[Var]) -> Coalesced | None:
    """The axis of `outer * size + inner`, or None if an axis does not start at 0.

    Also None if both extents may be negative, as their product would be positive; or if one is 0,
    as the product would hide a failure in evaluating the other.
    """
    if not (as_poly(outer.start).same(0) and as_poly(inner.start).same(0)):
        return None
    if as_poly(outer.stop).same(0) or as_poly(inner.stop).same(0):
        return None
    if not any(as_poly(axis.stop).is_at_least(0, shape_vars) for axis in (outer, inner)):
        return None
    kind = max(outer.var.dtype, inner.var.dtype, key=lambda dtype: dtype.bits)
    size = as_poly(inner.stop)
    var = Var(_common_name(outer.var.name, inner.var.name), kind)
    stop = ops.cast_to((as_poly(outer.stop) * size).expr(), kind)
    before = ops.cast_to(outer.var, kind) * ops.cast_to(size.expr(), kind)
    value = ops.cast_to(var - before, inner.var.dtype)
    return Coalesced(Axis(var, ops.const(0, kind), stop), value)


def _common_name(a: str, b: str) -> str:
    """The common prefix of the names of two loops, as `i` of `i_0` and `i_1`."""
    count = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return a[:count].rstrip("_") or a


def canonical(expr: PrimExpr, axes: Iterable[Axis], shape_vars: Container[Var]) -> PrimExpr:
    """`expr` with its index arithmetic as sums of products, with like terms combined.

    A cast of what may wrap around stays, since its operand is no longer what was written.
    """
    keeps_casts = any(may_wrap(c.value, axes, shape_vars) for c in occurrences(expr, Cast))

    def rule(node: Node) -> Node | None:
        if isinstance(node, (Var, IntImm)) or not (isinstance(node, PrimExpr) and _is_index(node)):
            return None
        if keeps_casts and any(True for _ in occurrences(node, Cast)):
            return None
        total = as_poly(node).expr()
        low, high = ops.int_range(node.dtype)
        if isinstance(total, IntImm) and not low <= total.value <= high:
            return None  # it wraps when it is evaluated
        return ops.cast_to(total, node.dtype)

    return cast("PrimExpr", rewrite(expr, rule))


# ---- splitting


def _split_points(loop: Loop, var: Var) -> list[IndexPoly]:
    """The weights of the digits of `var` that the body of `loop` uses."""
    exprs = (expr for item in loop.body for expr in _all_expressions(item))
    divisions = (node for expr in exprs for node in occurrences(expr, FloorDiv, FloorMod))
    return [p for p in (_split_point(node, var) for node in divisions) if p is not None]


def _split_point(division: BinaryOpExpr, var: Var) -> IndexPoly | None:
    """The weight at which a quotient or remainder splits `var`, or None if it does not."""
    if mentions(division.b, {var}):
        return None
    weight = _digit_weight(division.a, var)
    if weight is not None:
        return weight * as_poly(division.b)
    linear = affine(division.a, {var})
    if linear is not None and linear.coefficients:
        # The digits of k * var + offset are those of var, if k divides the weight.
        return quotient(as_poly(division.b), linear.coefficients[var])
    return None


def _digit_weight(value: PrimExpr, var: Var) -> IndexPoly | None:
    """The weight of the last digit of `value`, which consists of digits of `var`; or None."""
    match value:
        case Cast(value=inner):
            return _digit_weight(inner, var)
        case FloorDiv(a=a, b=b):
            weight = _digit_weight(a, var)
            return None if weight is None else weight * as_poly(b)
        case _:
            return as_poly(1) if value is var else None


def _digit_extents(extent: IndexPoly, weights: Sequence[IndexPoly]) -> list[IndexPoly] | None:
    """The extents of the digits, the highest first, or None if a weight does not divide another."""
    extents: list[IndexPoly] = []
    below = as_poly(1)
    for weight in [*sorted(weights, key=_largest_term), extent]:
        size = quotient(weight, below)
        if size is None:
            return None
        if not size.same(1):
            extents.insert(0, size)
        below = weight
    return extents if len(extents) > 1 else None


def _largest_term(size: IndexPoly) -> tuple[int, ...]:
    """The degree and the coefficient of the largest term; empty for 0."""
    return max(((len(monomial), factor) for monomial, factor in size.terms.items()), default=())


# ---- buffers as flat arrays


def linear_position(load: BufferLoad, axes: Sequence[Axis], variables: Set[Var]) -> Affine | None:
    """The position of `load` in its flattened buffer, if that is affine and in bounds."""
    analyzer = analyzer_of(axes)
    position: PrimExpr = ops.const(0, INT64)
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        low, high = ops.convert(index >= 0), ops.convert(index < size)
        if not (analyzer.can_prove(low) and analyzer.can_prove(high)):
            return None
        row = position * ops.cast_to(size, INT64)
        position = row + ops.cast_to(index, INT64)
    simple = analyzer.simplify(position)
    return affine(simple, variables) if keeps_divisions(position, simple, axes) else None
