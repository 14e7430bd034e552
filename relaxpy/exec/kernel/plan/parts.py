"""The parts that a kernel is scheduled by: stores over boxes, and groups that stay together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from relaxpy.exec.kernel.nest.bounds import may_fail
from relaxpy.exec.kernel.nest.domain import (
    Box,
    conjuncts,
    divide,
    follows,
    has_no_iteration,
    is_empty,
    is_point,
    keeps_first,
    nonempty,
)
from relaxpy.exec.kernel.nest.nodes import (
    Axis,
    Bind,
    Branch,
    Check,
    Invoke,
    Item,
    Jump,
    Leave,
    Loop,
    Make,
    Nest,
    Repeat,
    Store,
    every,
    expressions,
    jumps,
    loads,
    outside_calls,
    passed_memory,
    stored,
)
from relaxpy.exec.kernel.plan.initialisation import reduced_by, with_initialisation
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import EQ, Call, PrimExpr, StringImm, Var
from relaxpy.ir.tir.substitution import mentions, substitute

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read or write of `buffer`; each of `maps` is affine in the part's axes, or None."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    maps: tuple[Affine | None, ...]


_ELSEWHERE = Access(decl_buffer((), "uint8", "elsewhere"), (), ())
"""What functions outside the kernel do, which happens in the order of their calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """`target[indices] = value` over a box, where all `guards` hold.

    `axes` are the loops around it, outermost first; one of a single round stands for its start
    in all expressions. The axes in `ordered` may not be reordered.
    """

    axes: tuple[Axis, ...]
    target: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    guards: tuple[PrimExpr, ...]
    ordered: frozenset[Var]
    block: str | None
    span: Span | None
    write: Access = field(init=False)
    reads: tuple[Access, ...] = field(init=False)

    def __post_init__(self) -> None:
        variables = {a.var for a in self.axes}
        write = access(self.target, self.indices, variables)
        object.__setattr__(self, "write", write)
        bounds = [b for a in self.axes for b in (a.start, a.stop)]
        sources = (self.value, *self.indices, *self.guards, *bounds)
        object.__setattr__(self, "reads", tuple(_reads(sources, variables)))

    @property
    def writes(self) -> tuple[Access, ...]:
        """What is written: one element a round."""
        return (self.write,)

    @property
    def name(self) -> str:
        """The block's name, or else the target's."""
        return self.block or self.target.name


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Items that are performed together, in order, in each round of `axes`."""

    axes: tuple[Axis, ...]
    items: tuple[Item, ...]
    ordered: frozenset[Var]
    block: str | None
    reason: str
    reads: tuple[Access, ...] = field(init=False)
    writes: tuple[Access, ...] = field(init=False)

    def __post_init__(self) -> None:
        variables = {a.var for a in self.axes}
        sources = [e for item in every(self.items) for e in expressions(item)]
        sources += [b for a in self.axes for b in (a.start, a.stop)]
        inner = {i.axis.var for i in every(self.items) if isinstance(i, Loop)}
        inner |= {i.var for i in every(self.items) if isinstance(i, Bind)}
        stores = [i for i in every(self.items) if isinstance(i, Store)]
        writes = [access(s.buffer, s.indices, variables, inner) for s in stores]
        for source in sources:
            # What is called may change the memory it is handed, and all else that it knows.
            writes += (Access(memory.buffer, (), ()) for memory in passed_memory(source))
            writes += (_ELSEWHERE for _ in outside_calls(source))
        object.__setattr__(self, "writes", tuple(writes))
        object.__setattr__(self, "reads", tuple(_reads(sources, variables, inner)))

    @property
    def name(self) -> str:
        """The block's name, or else that of a buffer written."""
        return self.block or next((w.buffer.name for w in self.writes), "effect")


Part: TypeAlias = Statement | Group


def expressions_of(part: Part) -> Iterator[PrimExpr]:
    """What `part` evaluates, the bounds of its loops included."""
    for axis in part.axes:
        yield from (axis.start, axis.stop)
    match part:
        case Statement(indices=indices, value=value, guards=guards):
            yield from (*indices, value, *guards)
        case Group(items=items):
            yield from (e for item in every(items) for e in expressions(item))


def access(
    buffer: Buffer,
    indices: Iterable[PrimExpr],
    variables: Container[Var],
    varying: Container[Var] = (),
) -> Access:
    """The access of `buffer` at `indices`; what depends on `varying` or on memory is not affine."""
    indices = tuple(indices)
    maps = []
    for index in indices:
        fixed = not mentions(index, varying) and next(loads(index), None) is None
        maps.append(affine(index, variables) if fixed else None)
    return Access(buffer, tuple(indices), tuple(maps))


def _reads(
    sources: Iterable[PrimExpr], variables: Container[Var], varying: Container[Var] = ()
) -> Iterator[Access]:
    seen: set[BufferLoad] = set()
    for source in sources:
        for load in loads(source):
            if load not in seen:
                seen.add(load)
                yield access(load.buffer, load.indices, variables, varying)


def parts_of(nest: Nest, sizes: Container[Var]) -> list[Part]:
    """The parts of `nest` in the order of the text; loops are distributed over them."""
    return list(_Collector(nest, sizes).collect(nest.items, (), (), frozenset()))


class _Collector:
    def __init__(self, nest: Nest, sizes: Container[Var]) -> None:
        self.nest = nest
        self.sizes = sizes

    def collect(
        self,
        items: tuple[Item, ...],
        box: Box,
        guards: tuple[PrimExpr, ...],
        ordered: frozenset[Var],
    ) -> Iterator[Part]:
        for place, item in enumerate(items):
            reason = _together(item)
            if reason is not None:
                yield self.group(items[place:], box, guards, ordered, reason)
                return
            yield from self.item(item, box, guards, ordered)

    def group(
        self,
        items: tuple[Item, ...],
        box: Box,
        guards: tuple[PrimExpr, ...],
        ordered: frozenset[Var],
        reason: str,
    ) -> Group:
        if guards:
            items = (Branch(ops.all_of(*guards), items),)
        begin = reduced_by(items)
        empty = {v for v, a in begin.items() if has_no_iteration(a, self.sizes) is not None}
        while any(a.var in empty for a in box):
            *outer, axis = box
            box, items = tuple(outer), (Loop(axis, items),)
        items = with_initialisation(items, self.sizes)
        block = next((i.block for i in every(items) if isinstance(i, Store)), None)
        return Group(box, items, ordered, block, reason)

    def item(
        self,
        item: Item,
        box: Box,
        guards: tuple[PrimExpr, ...],
        ordered: frozenset[Var],
    ) -> Iterator[Part]:
        match item:
            case Loop(axis=axis, body=body):
                start, stop = _settled((axis.start, axis.stop), box)
                axis = Axis(axis.var, start, stop)
                outer = {a.var for a in box}
                moving = {v for v in outer if mentions(axis.start, {v}) or mentions(axis.stop, {v})}
                changing = any(self.overwritten(e, body) for e in (axis.start, axis.stop))
                invoked = any(True for e in (axis.start, axis.stop) for _ in outside_calls(e))
                # Where a guard fails the end is not evaluated.
                early = guards and any(
                    may_fail(e, box, self.sizes) for e in (axis.start, axis.stop)
                )
                if invoked or changing or early or any(True for _ in jumps(body)):
                    reason = "a loop whose end is decided while it runs"
                    yield self.group((item,), box, guards, ordered, reason)
                else:
                    parts = list(self.collect(body, (*box, axis), guards, ordered | moving))
                    drawn_in = next((p for p in parts if len(p.axes) <= len(box)), None)
                    if isinstance(drawn_in, Group) and len(parts) > 1:
                        # A group has taken the loop for its own, which others need as well.
                        parts = [self.group((item,), box, guards, ordered, drawn_in.reason)]
                    yield from parts
            case Branch():
                yield from self.branch(item, box, guards, ordered)
            case Store() if (called := _called(item)) is not None:
                yield self.group((item,), box, guards, ordered, called)
            case Invoke():
                yield self.group((item,), box, guards, ordered, _called(item) or "")
            case Store():
                yield from self.statements(item, box, guards, ordered)
            case Repeat():
                yield self.group((item,), box, guards, ordered, "a while loop")
            case Check() | Leave() | Bind() | Jump() | Make():
                yield self.group((item,), box, guards, ordered, "control")

    def branch(
        self, branch: Branch, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Part]:
        condition = branch.condition
        if branch.first:
            yield from self.init(branch, box, guards, ordered)
            return
        first = frozenset() if branch.orelse else _first_rounds(condition, box)
        if first:
            start = [replace(a, stop=ops.add(a.start, 1)) if a.var in first else a for a in box]
            some = (a for a in box if a.var in first)
            tests = [t for a in some if (t := nonempty(a, self.sizes)) is not None]
            yield from self.collect(branch.body, tuple(start), (*guards, *tests), ordered)
            return
        whole = _moving(box) or any(is_empty(a, self.sizes) for a in box)
        found = None if whole else divide(condition, box, self.sizes)
        sides = found and (
            (condition, found.holds, branch.body),
            (ops.logical_not(condition), found.fails, branch.orelse),
        )
        if sides and all(_begins_once(body, parts, test, box) for test, parts, body in sides):
            for _, parts, body in sides:
                for part in parts if body else ():
                    yield from self.collect(body, part, guards, ordered)
            return
        called = any(True for _ in outside_calls(condition))
        if called or any(
            True for i in every((branch,)) for e in expressions(i) for _ in passed_memory(e)
        ):
            reason = next(r for i in every((branch,)) if (r := _called(i)))
            yield self.group((branch,), box, guards, ordered, reason)
            return
        reason = ""
        if self.overwritten(condition, (branch,)):
            reason = "the branch overwrites what its condition reads"
        elif may_fail(condition, box, self.sizes) and not (
            _acts(branch.body, self.sizes) or _acts(branch.orelse, self.sizes)
        ):
            reason = "a condition may stop the program where nothing follows it"
        if reason:
            yield self.group((branch,), box, guards, ordered, reason)
            return
        yield from self.collect(branch.body, box, (*guards, condition), ordered)
        if branch.orelse:
            yield from self.collect(
                branch.orelse, box, (*guards, ops.logical_not(condition)), ordered
            )

    def init(
        self, init: Branch, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Part]:
        """A block's init: in the first round of its loops, and where one of these has no round."""
        first = {a.var: a for a in init.first}
        start: Box = ()
        tests: list[PrimExpr] = []
        for axis in box:
            begin, end = _settled((axis.start, axis.stop), start)
            if (whole := first.get(axis.var)) is not None:
                begin, end = _settled((whole.start, ops.add(whole.start, 1)), start)
                if not keeps_first(axis, whole, self.sizes):
                    inside = ops.convert(axis.start <= axis.var), ops.convert(axis.var < axis.stop)
                    tests += inside
            start = (*start, Axis(axis.var, begin, end))
        tests += (test for guard in guards for test in conjuncts(guard))
        asked = tuple(self.asked(tests, init.first, start))
        if {a.var for a in init.first} == _first_rounds(init.condition, start):
            yield from self.collect(init.body, start, asked, ordered)
            return
        yield from self.branch(replace(init, first=()), box, guards, ordered)
        none = [t for a in init.first if (t := has_no_iteration(a, self.sizes)) is not None]
        if none:
            asked = (ops.any_of(*none), *asked, init.condition)
            yield from self.collect(init.body, start, asked, ordered)

    def asked(
        self, tests: Iterable[PrimExpr], first: tuple[Axis, ...], start: Box
    ) -> Iterator[PrimExpr]:
        """Of `tests` in the first round of the loops `first` what is left to ask.

        Those that speak of a loop without any round are not asked.
        """
        for test in tests:
            about = [a for a in first if mentions(test, {a.var}) or test is nonempty(a, self.sizes)]
            if not about:
                yield test
                continue
            [found] = _settled((test,), start)
            if not follows(found, about, self.sizes):
                none = (t for a in about if (t := has_no_iteration(a, self.sizes)) is not None)
                yield ops.any_of(*none, found)

    def overwritten(self, expr: PrimExpr, items: tuple[Item, ...]) -> bool:
        """Whether `items` store to memory that `expr` reads."""
        written = set(map(self.nest.memory, stored(items)))
        return any(self.nest.memory(load.buffer) in written for load in loads(expr))

    def statements(
        self, store: Store, box: Box, guards: tuple[PrimExpr, ...], ordered: frozenset[Var]
    ) -> Iterator[Part]:
        """The store over its box, divided where an if_then_else in the value can be decided."""
        box = _settled_box(box) if _moving(box) else box
        if any(is_empty(a, self.sizes) for a in box):
            return
        indices, value = _settled(store.indices, box), _settled((store.value,), box)[0]
        guards = tuple(_settled(guards, box))
        for condition in () if _moving(box) else _choices(value):
            found = divide(condition, box, self.sizes)
            if found is None or not (found.holds or found.fails):
                continue
            if len(found.holds) + len(found.fails) > 1 and _accumulates(store, box):
                continue
            for parts, taken in ((found.holds, True), (found.fails, False)):
                chosen = _decided(value, condition, taken=taken)
                for part in parts:
                    yield from self.statements(replace(store, value=chosen), part, guards, ordered)
            return
        yield Statement(
            box, store.buffer, tuple(indices), value, guards, ordered, store.block, store.span
        )


def _acts(items: tuple[Item, ...], sizes: Container[Var]) -> bool:
    """Whether something is proved to be performed whenever `items` are."""
    for item in items:
        match item:
            case Loop(axis=axis, body=body):
                if has_no_iteration(axis, sizes) is None and _acts(body, sizes):
                    return True
            case Branch() | Repeat():
                pass
            case _:
                return True
    return False


def _first_rounds(condition: PrimExpr, box: Box) -> frozenset[Var]:
    """The axes of which `condition` asks that they are in their first round, if that is all."""
    starts = {a.var: a.start for a in box}
    found = set()
    for test in conjuncts(condition):
        match test:
            case EQ(a=Var() as var, b=value) | EQ(a=value, b=Var() as var) if (
                var in starts and as_poly(value).same(as_poly(starts[var]))
            ):
                found.add(var)
            case _:
                return frozenset()
    return frozenset(found)


def _begins_once(
    items: tuple[Item, ...], parts: tuple[Box, ...], condition: PrimExpr, box: Box
) -> bool:
    """Whether the blocks in `items` begin as they should in the `parts` where `condition` holds.

    Where a loop that only reduces them has no round, nothing that is said of it counts.
    """
    reducing = reduced_by(items)
    tests = (t for t in conjuncts(condition) if mentions(t, reducing))
    others = {a.var for a in box if a.var not in reducing}
    return all(len(parts) == 1 and not mentions(test, others) for test in tests)


def _together(item: Item) -> str | None:
    """Why `item` and what follows it cannot be taken apart, or None if they can."""
    match item:
        case Bind(var=var, value=value):
            called = next(outside_calls(value), None)
            if called is not None:
                return f"{var.name} is what {name_of(called)} gives"
            return f"{var.name} is read after what it was computed from is overwritten"
        case Make(buffer=buffer):
            return f"the size of {buffer.name} is known only here"
        case Loop() | Branch() | Repeat() if any(isinstance(i, Leave) for i in every((item,))):
            return "the kernel may end early"
        case _:
            return None


def _called(item: Item) -> str | None:
    """That `item` calls a function outside the kernel, in words."""
    calls = (call for expr in expressions(item) for call in outside_calls(expr))
    called = next(calls, None)
    return None if called is None else f"calls {name_of(called)}"


def name_of(call: Call) -> str:
    """The name of the function that `call` leaves the kernel for."""
    if isinstance(call.op, GlobalVar):
        return call.op.name_hint
    symbol = call.args[0]
    return symbol.value if isinstance(symbol, StringImm) else str(symbol)


def _moving(box: Box) -> bool:
    """Whether the bounds of one axis depend on another."""
    variables = {a.var for a in box}
    return any(mentions(b, variables) for a in box for b in (a.start, a.stop))


def _settled(values: Iterable[PrimExpr], box: Box) -> list[PrimExpr]:
    """`values` with the start of each axis of one round in place of its variable."""
    fixed: Mapping[Var, PrimExpr] = {
        a.var: ops.cast_to(a.start, a.var.dtype) for a in box if is_point(a)
    }
    return [substitute(v, fixed) for v in values]


def _settled_box(box: Box) -> Box:
    """`box` with bounds that no longer depend on axes of one round."""
    found: list[Axis] = []
    for axis in box:
        start, stop = _settled((axis.start, axis.stop), tuple(found))
        found.append(Axis(axis.var, start, stop))
    return tuple(found)


def _choices(value: PrimExpr) -> Iterator[PrimExpr]:
    """The conditions of the if_then_else in `value`, outer ones first: they leave least over."""
    for part in reversed(list(walk(value))):
        if (
            isinstance(part, Call)
            and isinstance(part.op, Op)
            and part.op.name == "tir.if_then_else"
        ):
            yield part.args[0]


def _accumulates(store: Store, box: Box) -> bool:
    """Whether the store meets one element several times, so that dividing it would reorder sums."""
    return not all(any(mentions(i, {a.var}) for i in store.indices) for a in box if not is_point(a))


def _decided(value: PrimExpr, condition: PrimExpr, *, taken: bool) -> PrimExpr:
    """`value` where the if_then_else on `condition` has been decided."""

    def rule(node: Node) -> Node | None:
        match node:
            case Call(op=Op(name="tir.if_then_else"), args=(test, yes, no)) if test is condition:
                return yes if taken else no
            case _:
                return None

    return cast("PrimExpr", rewrite(value, rule))
