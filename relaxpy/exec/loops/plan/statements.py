"""The statements of a kernel: assignments over boxes, and compound statements."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias, cast

from relaxpy.exec.loops.nest.bounds import may_fail
from relaxpy.exec.loops.nest.domain import (
    Box,
    Split,
    empty_condition,
    is_empty,
    is_point,
    nonempty_condition,
    split,
)
from relaxpy.exec.loops.nest.nodes import (
    Alloc,
    Axis,
    Bind,
    Branch,
    Check,
    Invoke,
    Item,
    Jump,
    Loop,
    Nest,
    Return,
    Store,
    WhileLoop,
    callee_name,
    expressions,
    external_calls,
    jumps,
    loads,
    passed_memory,
    stored_buffers,
    walk_items,
)
from relaxpy.exec.loops.plan.updates import Combine, Update, update_of
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import EQ, Call, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read or write of `buffer`; each of `maps` is affine in the statement's axes, or None."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    maps: tuple[Affine | None, ...]


_UNKNOWN_MEMORY = Access(decl_buffer((), "uint8", "elsewhere"), (), ())
"""The effects of external functions, which are called in source order."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """`target[indices] = value` over a box, where all `guards` hold.

    `axes` are the enclosing loops, outermost first. The variable of an axis with one iteration is
    replaced by its start in all expressions. The axes in `ordered` may not be reordered.

    An accumulation has a function to `combine` the target with the value. It starts from `initial`,
    which is also its result if it is empty, or without one from the current value of the target.
    """

    axes: tuple[Axis, ...]
    target: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    guards: tuple[PrimExpr, ...]
    ordered: frozenset[Var]
    block: str | None
    span: Span | None
    combine: Combine | None = None
    initial: PrimExpr | None = None

    @late_property
    def update(self) -> Update | None:
        """The accumulation into the target, if it is one."""
        if self.combine is not None:
            return Update(self.combine, self.value)
        return update_of(self.value, BufferLoad(self.target, self.indices), self.axes)

    @late_property
    def write(self) -> Access:
        """The element that an iteration stores."""
        return access(self.target, self.indices, {a.var for a in self.axes})

    @property
    def writes(self) -> tuple[Access, ...]:
        """The write: one element in each iteration."""
        return (self.write,)

    @late_property
    def reads(self) -> tuple[Access, ...]:
        """The accesses that an iteration reads, with the bounds of the loops."""
        found = _reads(expressions_of(self), {a.var for a in self.axes})
        present = () if self.combine is None or self.initial is not None else (self.write,)
        return (*present, *found)

    def read_elements(self) -> tuple[tuple[Buffer, tuple[PrimExpr, ...]], ...]:
        """The buffers and indices that an iteration of an accumulation or store reads."""
        return self._read_elements

    @late_property
    def _read_elements(self) -> tuple[tuple[Buffer, tuple[PrimExpr, ...]], ...]:
        sources = (self.value, *self.guards, *self.indices)
        return tuple((load.buffer, load.indices) for e in sources for load in loads(e))

    def elements(self) -> Iterator[tuple[Buffer, tuple[PrimExpr, ...]]]:
        """The same, with the element of the target and the loads of the initial value."""
        yield from self._read_elements
        yield self.target, self.indices
        if self.initial is not None:
            yield from ((load.buffer, load.indices) for load in loads(self.initial))

    def accumulating(self) -> Assignment:
        """The statement as an accumulation, which its `update` describes."""
        assert self.update is not None
        return replace(self, value=self.update.operand, combine=self.update.combine)

    def rewritten(self, change: Callable[[PrimExpr], PrimExpr]) -> Assignment:
        """The same with other expressions."""
        return replace(
            self,
            indices=tuple(map(change, self.indices)),
            value=change(self.value),
            guards=tuple(map(change, self.guards)),
            initial=None if self.initial is None else change(self.initial),
        )

    def relocated(self, place: Callable[[BufferLoad], BufferLoad]) -> Assignment:
        """The same with elements of buffers replaced by those of others."""

        def change(expr: PrimExpr) -> PrimExpr:
            rule = lambda node: place(node) if isinstance(node, BufferLoad) else None  # noqa: E731
            return cast("PrimExpr", rewrite(expr, rule))

        moved = self.rewritten(change)
        target = place(BufferLoad(moved.target, moved.indices))
        return replace(moved, target=target.buffer, indices=target.indices)

    def substituted(self, values: Mapping[Var, PrimExpr]) -> Assignment:
        """The same with `values`, converted to their datatypes, for variables."""
        if not values:
            return self
        values = {var: ops.cast_to(value, var.dtype) for var, value in values.items()}
        named = ((values.get(a.var, a.var), a) for a in self.axes)
        axes = tuple(replace(a, var=var) for var, a in named if isinstance(var, Var))
        return replace(self, axes=axes).rewritten(lambda expr: substitute(expr, values))

    @property
    def name(self) -> str:
        """The block's name, or else the target's."""
        return self.block or self.target.name


@dataclass(frozen=True, slots=True, eq=False)
class Compound:
    """Items that are executed together, in order, in each iteration of `axes`."""

    axes: tuple[Axis, ...]
    items: tuple[Item, ...]
    ordered: frozenset[Var]
    block: str | None
    reason: str
    reads: tuple[Access, ...] = field(init=False)
    writes: tuple[Access, ...] = field(init=False)

    def __post_init__(self) -> None:
        variables = {a.var for a in self.axes}
        sources = list(expressions_of(self))
        inner = {i.axis.var for i in walk_items(self.items) if isinstance(i, Loop)}
        inner |= {i.var for i in walk_items(self.items) if isinstance(i, Bind)}
        stores = [i for i in walk_items(self.items) if isinstance(i, Store)]
        writes = [access(s.buffer, s.indices, variables, inner) for s in stores]
        for source in sources:
            # A function may change its arguments' memory, and any other memory that it can access.
            writes += (Access(memory.buffer, (), ()) for memory in passed_memory(source))
            writes += (_UNKNOWN_MEMORY for _ in external_calls(source))
        object.__setattr__(self, "writes", tuple(writes))
        object.__setattr__(self, "reads", tuple(_reads(sources, variables, inner)))

    @property
    def name(self) -> str:
        """The block's name, or else the name of a buffer that is written."""
        return self.block or next((w.buffer.name for w in self.writes), "effect")


Statement: TypeAlias = Assignment | Compound


def expressions_of(statement: Statement) -> Iterator[PrimExpr]:
    """The expressions that `statement` evaluates, including the bounds of its loops."""
    for axis in statement.axes:
        yield from (axis.start, axis.stop)
    match statement:
        case Assignment(indices=indices, value=value, guards=guards, initial=initial):
            yield from (*indices, value, *guards)
            if initial is not None:
                yield initial
        case Compound(items=items):
            yield from (e for item in walk_items(items) for e in expressions(item))


def access(
    buffer: Buffer, indices: Iterable[PrimExpr], variables: Set[Var], varying: Container[Var] = ()
) -> Access:
    """The access of `buffer` at `indices`; those with loads or `varying` variables have no map."""
    indices = tuple(indices)
    maps = []
    for index in indices:
        fixed = not mentions(index, varying) and next(loads(index), None) is None
        maps.append(affine(index, variables) if fixed else None)
    return Access(buffer, indices, tuple(maps))


def _reads(
    sources: Iterable[PrimExpr], variables: Set[Var], varying: Container[Var] = ()
) -> Iterator[Access]:
    seen: set[BufferLoad] = set()
    for source in sources:
        for load in loads(source):
            if load not in seen:
                seen.add(load)
                yield access(load.buffer, load.indices, variables, varying)


def statements_of(nest: Nest, shape_vars: Container[Var]) -> list[Statement]:
    """The statements of `nest` in source order; loops are distributed over them."""
    return list(_Collector(nest, shape_vars).collect(nest.items, (), (), frozenset()))


class _Collector:
    def __init__(self, nest: Nest, shape_vars: Container[Var]) -> None:
        self.nest = nest
        self.shape_vars = shape_vars

    def collect(
        self,
        items: tuple[Item, ...],
        box: Box,
        guards: tuple[PrimExpr, ...],
        ordered: frozenset[Var],
    ) -> Iterator[Statement]:
        for position, item in enumerate(items):
            reason = _cannot_distribute(item)
            if reason is not None:
                yield self.compound(items[position:], box, guards, ordered, reason)
                return
            yield from self.item(item, box, guards, ordered)

    def compound(
        self,
        items: tuple[Item, ...],
        box: Box,
        guards: tuple[PrimExpr, ...],
        ordered: frozenset[Var],
        reason: str,
    ) -> Compound:
        if guards:
            items = (Branch(ops.all_of(*guards), items),)
        block = next((i.block for i in walk_items(items) if isinstance(i, Store)), None)
        return Compound(box, items, ordered, block, reason)

    def item(
        self, item: Item, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterable[Statement]:
        reason = "control"
        match item:
            case Loop():
                return self.loop(item, box, guards, ordered)
            case Branch():
                return self.branch(item, box, guards, ordered)
            case Store() if _call_reason(item) is None:
                return self.statements(item, box, guards, ordered)
            case Check(condition=condition) if self.is_proved(condition, box):
                return ()
            case Store() | Invoke():
                reason = _call_reason(item) or ""
            case WhileLoop():
                reason = "a while loop"
            case Check() | Return() | Bind() | Jump() | Alloc():
                pass
        return (self.compound((item,), box, guards, ordered, reason),)

    def loop(
        self, loop: Loop, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Statement]:
        """The statements of a loop, each in the loop; or all of it as one statement."""
        bounds = start, stop = _points_substituted((loop.axis.start, loop.axis.stop), box)
        if self.ends_while_it_runs(bounds, loop.body, box, guards):
            reason = "the end of a loop is decided while it runs"
            yield self.compound((loop,), box, guards, ordered, reason)
            return
        mentioned = {a.var for a in box if any(mentions(e, {a.var}) for e in bounds)}
        inside = (*box, replace(loop.axis, start=start, stop=stop))
        statements = list(self.collect(loop.body, inside, guards, ordered | mentioned))
        unenclosed = next((s for s in statements if len(s.axes) <= len(box)), None)
        if not statements and any(may_fail(e, box, self.shape_vars) for e in bounds):
            reason = "the bounds of a loop may stop the program"
            yield self.compound((loop,), box, guards, ordered, reason)
        elif isinstance(unenclosed, Compound) and len(statements) > 1:
            # A compound statement contains the loop, which the others need, too.
            yield self.compound((loop,), box, guards, ordered, unenclosed.reason)
        else:
            yield from statements

    def ends_while_it_runs(
        self,
        bounds: Sequence[PrimExpr],
        body: tuple[Item, ...],
        box: Box,
        guards: tuple[PrimExpr, ...],
    ) -> bool:
        """True if a call, a store, a guard or a jump decides how often a loop runs."""
        return (
            any(True for e in bounds for _ in external_calls(e))
            or any(self.overwritten(e, body) for e in bounds)
            or bool(guards and any(may_fail(e, box, self.shape_vars) for e in bounds))
            or any(True for _ in jumps(body))
        )

    def branch(
        self, branch: Branch, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Statement]:
        """The statements of a branch: in parts of the loops, guarded, or all of it as one."""
        condition = branch.condition
        if not branch.orelse and (first := _first_iterations(condition, box)):
            start = [replace(a, stop=a.start + 1) if a.var in first else a for a in box]
            peeled = (a for a in box if a.var in first)
            tests = [t for a in peeled if (t := nonempty_condition(a, self.shape_vars)) is not None]
            # The guards are not evaluated if the loop is empty.
            yield from self.collect(branch.body, tuple(start), (*tests, *guards), ordered)
        elif (boxes := self.parts(branch, box)) is not None:
            for side, body in ((boxes.holds, branch.body), (boxes.fails, branch.orelse)):
                for inner in side if body else ():
                    yield from self.collect(body, inner, guards, ordered)
        elif reason := self.why_as_one(branch, box):
            yield self.compound((branch,), box, guards, ordered, reason)
        else:
            yield from self.collect(branch.body, box, (*guards, condition), ordered)
            if branch.orelse:
                fails = ops.logical_not(condition)
                yield from self.collect(branch.orelse, box, (*guards, fails), ordered)

    def parts(self, branch: Branch, box: Box) -> Split | None:
        """The parts of the box where the condition holds and fails, if these may have own loops.

        The loop of a part may be fused with that of the whole, which then evaluates the bounds of
        inner loops.
        """
        if _is_triangular(box) or any(is_empty(a, self.shape_vars) for a in box):
            return None
        inner = (loop.axis for loop in walk_items((branch,)) if isinstance(loop, Loop))
        bounds = (bound for axis in inner for bound in (axis.start, axis.stop))
        if any(may_fail(bound, box, self.shape_vars) for bound in bounds):
            return None
        return split(branch.condition, box, self.shape_vars)

    def why_as_one(self, branch: Branch, box: Box) -> str:
        """The reason why the statements of a branch cannot each test its condition, or empty."""
        condition, inside = branch.condition, [*walk_items((branch,))]
        passed = (memory for i in inside for e in expressions(i) for memory in passed_memory(e))
        if any(True for _ in external_calls(condition)) or any(True for _ in passed):
            return next(reason for i in inside if (reason := _call_reason(i)))
        if self.overwritten(condition, (branch,)):
            return "the branch overwrites what its condition reads"
        has_effect = any(
            _has_effect(side, self.shape_vars) for side in (branch.body, branch.orelse)
        )
        if not has_effect and may_fail(condition, box, self.shape_vars):
            return "a condition may stop the program although nothing depends on it"
        return ""

    def overwritten(self, expr: PrimExpr, items: tuple[Item, ...]) -> bool:
        """True if `items` store to memory that `expr` reads."""
        written = set(map(self.nest.memory, stored_buffers(items)))
        return any(self.nest.memory(load.buffer) in written for load in loads(expr))

    def is_proved(self, condition: PrimExpr, box: Box) -> bool:
        """True if an assertion provably holds, so that no back end tests it."""
        if _is_triangular(box) or self.bounds_may_fail(box):
            return False
        if may_fail(condition, box, self.shape_vars) or any(
            True for _ in external_calls(condition)
        ):
            return False
        sides = split(condition, box, self.shape_vars)
        return sides is not None and not sides.fails

    def bounds_may_fail(self, box: Box) -> bool:
        """True if evaluating the bounds of these loops may stop the program."""
        return any(
            may_fail(bound, box[:k], self.shape_vars)
            for k, axis in enumerate(box)
            for bound in (axis.start, axis.stop)
        )

    def statements(
        self, store: Store, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Statement]:
        """The store over its box, split by the conditions of if_then_else in the value."""
        box = _points_eliminated(box) if _is_triangular(box) else box
        empty = next((k for k, a in enumerate(box) if is_empty(a, self.shape_vars)), None)
        if empty is not None and not self.bounds_may_fail(box[:empty]):
            return
        *indices, value = _points_substituted((*store.indices, store.value), box)
        guards = tuple(_points_substituted(guards, box)) if guards else ()
        for condition in () if _is_triangular(box) else _branch_conditions(value):
            boxes = split(condition, box, self.shape_vars)
            if boxes is None or not (boxes.holds or boxes.fails):
                continue
            if len(boxes.holds) + len(boxes.fails) > 1 and _accumulates(store, box):
                continue
            for side, taken in ((boxes.holds, True), (boxes.fails, False)):
                chosen = replace(store, value=_branch_resolved(value, condition, taken=taken))
                for inner in side:
                    yield from self.statements(chosen, inner, guards, ordered)
            return
        yield Assignment(
            box, store.buffer, tuple(indices), value, guards, ordered, store.block, store.span
        )


def _has_effect(items: tuple[Item, ...], shape_vars: Container[Var]) -> bool:
    """True if `items` provably execute a statement whenever they run."""
    for item in items:
        match item:
            case Loop(axis=axis, body=body):
                if empty_condition(axis, shape_vars) is None and _has_effect(body, shape_vars):
                    return True
            case Branch() | WhileLoop():
                pass
            case _:
                return True
    return False


def _first_iterations(condition: PrimExpr, box: Box) -> frozenset[Var]:
    """The axes whose first iterations `condition` selects; empty if it has other conjuncts."""
    starts = {a.var: a.start for a in box}
    selected = set()
    for test in conjuncts(condition):
        match test:
            case EQ(a=Var() as var, b=value) | EQ(a=value, b=Var() as var) if (
                var in starts and as_poly(value).same(as_poly(starts[var]))
            ):
                selected.add(var)
            case _:
                return frozenset()
    return frozenset(selected)


def _cannot_distribute(item: Item) -> str | None:
    """The reason why loops cannot be distributed over `item` and its successors, or None."""
    match item:
        case Bind(var=var, value=value):
            called = next(external_calls(value), None)
            if called is not None:
                return f"{var.name} is the result of {callee_name(called)}"
            return f"{var.name} is used after its operands are overwritten"
        case Alloc(buffer=buffer):
            return f"the shape of {buffer.name} is known only here"
        case Loop() | Branch() | WhileLoop() if any(
            isinstance(i, Return) for i in walk_items((item,))
        ):
            return "the kernel may end early"
        case _:
            return None


def _call_reason(item: Item) -> str | None:
    """A description of the first external call of `item`, or None."""
    calls = (call for expr in expressions(item) for call in external_calls(expr))
    called = next(calls, None)
    return None if called is None else f"calls {callee_name(called)}"


def _is_triangular(box: Box) -> bool:
    """True if the bounds of one axis depend on another."""
    variables = {a.var for a in box}
    return any(mentions(b, variables) for a in box for b in (a.start, a.stop))


def _points_substituted(values: Iterable[PrimExpr], box: Box) -> list[PrimExpr]:
    """`values` with the variable of each axis that has one iteration replaced by its start."""
    fixed: Mapping[Var, PrimExpr] = {
        a.var: ops.cast_to(a.start, a.var.dtype) for a in box if is_point(a)
    }
    return [substitute(v, fixed) for v in values]


def _points_eliminated(box: Box) -> Box:
    """`box` with bounds that do not depend on axes with one iteration."""
    if not any(map(is_point, box)):
        return box
    result: list[Axis] = []
    for axis in box:
        start, stop = _points_substituted((axis.start, axis.stop), tuple(result))
        result.append(replace(axis, start=start, stop=stop))
    return tuple(result)


def _branch_conditions(value: PrimExpr) -> Iterator[PrimExpr]:
    """The conditions of the if_then_else in `value`, outer ones first."""
    for node in reversed(list(occurrences(value, Call))):
        match node:
            case Call(op=Op(name="tir.if_then_else"), args=(condition, *_)):
                yield condition
            case _:
                pass


def _accumulates(store: Store, box: Box) -> bool:
    """True if the store accesses an element repeatedly: a split would reorder sums."""
    return not all(any(mentions(i, {a.var}) for i in store.indices) for a in box if not is_point(a))


def _branch_resolved(value: PrimExpr, condition: PrimExpr, *, taken: bool) -> PrimExpr:
    """`value` with the if_then_else on `condition` replaced by one of its branches."""

    def rule(node: Node) -> Node | None:
        match node:
            case Call(op=Op(name="tir.if_then_else"), args=(test, yes, no)) if test is condition:
                return yes if taken else no
            case _:
                return None

    return cast("PrimExpr", rewrite(value, rule))
