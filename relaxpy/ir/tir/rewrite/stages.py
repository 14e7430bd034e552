"""Reads, writes and updates of the blocks of a scope: the dependences between its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from math import prod
from typing import TypeGuard

from typing_extensions import override

from relaxpy.errors import MisuseError, ScheduleError
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, IterSumExpr, analyzer_of
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, occurrences, preorder, walk
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.analysis.index_inverse import minimum_of, stop_of
from relaxpy.ir.tir.analysis.regions import Accesses, Interval
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import GT, NE, Call, FloatImm, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.state import State, child_blocks, domains_of, refused, statements
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

_COMBINERS: dict[type[PrimExpr], Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    tir.Add: ops.add,
    tir.Mul: ops.mul,
    tir.Min: ops.minimum,
    tir.Max: ops.maximum,
    tir.And: ops.all_of,
    tir.Or: ops.any_of,
}


#: Idempotent combiners.
IDEMPOTENT = frozenset((tir.Min, tir.Max, tir.And, tir.Or))


@dataclass(frozen=True, slots=True)
class Reduction:
    """`store.buffer[store.indices] = combine(its value, source)`."""

    kind: type[PrimExpr]
    store: stmt.BufferStore
    source: PrimExpr

    @property
    def buffer(self) -> Buffer:
        """The buffer of the result."""
        return self.store.buffer

    def combine(self, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        """The combination of two values."""
        return _COMBINERS[self.kind](old, new)


def reduction_of(block: stmt.Block) -> Reduction | None:
    """The reduction whose updates are the body of `block`, or None if it is not known."""
    store = _without_lets(block.body)
    if store is None or store.predicate is not None:
        return None
    value, kind = store.value, type(store.value)
    if kind not in _COMBINERS or not isinstance(value, (tir.BinaryOpExpr, tir.Junction)):
        return None
    for old, new in ((value.a, value.b), (value.b, value.a)):
        if _is_old(old, store) and not any(
            load.buffer is store.buffer for load in occurrences(new, BufferLoad)
        ):
            return Reduction(kind, store, new)
    return None


def _without_lets(body: stmt.Stmt) -> stmt.BufferStore | None:
    """The only store of a body, with the values of the variables that lets around it bind."""
    match body:
        case stmt.LetStmt(var=var, value=value, body=inner) if _has_no_effect(value):
            store = _without_lets(inner)
            new = None if store is None else substitute(store, {var: value})
            return new if isinstance(new, stmt.BufferStore) else None
        case stmt.BufferStore(value=tir.Let(var=var, value=value, body=inner)) if _has_no_effect(
            value
        ):
            return _without_lets(replace(body, value=substitute(inner, {var: value})))
        case _:
            return body if isinstance(body, stmt.BufferStore) else None


def _has_no_effect(value: PrimExpr) -> bool:
    """True if a value may be computed once more, or not at all."""
    return all(effect_of(call) <= CallEffectKind.ReadState for call in occurrences(value, Call))


def _is_old(value: PrimExpr, store: stmt.BufferStore) -> bool:
    return (
        isinstance(value, BufferLoad)
        and value.buffer is store.buffer
        and len(value.indices) == len(store.indices)
        and all(map(PrimExpr.same_as, value.indices, store.indices))
    )


def is_commutative(block: stmt.Block) -> bool:
    """True if the updates of `block` are those of a known commutative reduction."""
    return reduction_of(block) is not None


def identity_of(kind: type[PrimExpr], dtype: DataType) -> PrimExpr:
    """The identity element."""
    return ops.const(1 if kind is tir.Mul else 0, dtype)


Indices = tuple[PrimExpr, ...]


class Bodies(Accesses):
    """Collects accesses from the bodies of blocks, not from their declared reads and writes."""

    @override
    def declared(self, block: stmt.Block) -> None:
        self.hidden |= set(block.alloc_buffers)
        self.own_data |= {buffer.data for buffer in block.alloc_buffers}
        for match in block.match_buffers:
            self.views[match.buffer] = match.source
            self.own_data.add(match.buffer.data)
        if block.init is not None:
            self.statement(block.init)
        self.statement(block.body)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A block of a scope, its loops, and the regions of buffers that it reads and writes.

    The regions are over the variables of the block. They exclude the `tables`: buffers that the
    init fills with the same numbers every time, and nothing else writes. The regions of an opaque
    block, which uses pointers, are those that it declares. The guards and values of the block read
    `deciding` buffers at unknown indices. `guards` are the branches and while loops that enclose
    the block, each with its depth in the `loops`.
    """

    block: stmt.Block
    realize: stmt.BlockRealize
    loops: tuple[stmt.For, ...]
    reads: Mapping[Buffer, Sequence[Interval]]
    writes: Mapping[Buffer, Sequence[Interval]]
    tables: frozenset[Buffer]
    deciding: frozenset[Buffer]
    guards: Sequence[tuple[int, stmt.Stmt]]
    is_opaque: bool = False

    @property
    def name(self) -> str:
        """The name of the block."""
        return self.block.name_hint

    def iters(self, kind: IterVarKind) -> list[IterVar]:
        """The block variables of a kind that have more than one value."""
        return [it for it in self.block.iter_vars if it.iter_type == kind and not is_unit(it.dom)]

    def values(self) -> dict[Var, PrimExpr]:
        """The value of each block variable."""
        pairs = zip(self.block.iter_vars, self.realize.iter_values, strict=True)
        return {it.var: value for it, value in pairs}

    def direct_loops(self) -> list[stmt.For]:
        """The loops whose variables the block uses other than through its own."""
        used = set(occurrences(self.block, Var))
        return [loop for loop in self.loops if loop.loop_var in used]

    def uses(self, loop: stmt.For) -> bool:
        """True if the variable of a loop decides what the block does, or if it runs."""
        outside = *self.realize.iter_values, self.realize.predicate, *(g for _, g in self.guards)
        used = {var for node in outside for var in occurrences(node, Var)}
        return loop.loop_var in used or loop in self.direct_loops()

    def reduction_loops(self) -> list[stmt.For]:
        """The loops on which a reduction variable depends."""
        values = self.values()
        bound = [
            values[it.var] for it in self.block.iter_vars if it.iter_type == IterVarKind.CommReduce
        ]
        return [
            loop for loop in self.loops if any(mentions(value, (loop.loop_var,)) for value in bound)
        ]

    def runs_once(self) -> bool:
        """True if no two iterations of the loops have the same values of what the block uses."""
        direct = [loop.loop_var for loop in self.direct_loops()]
        return is_one_to_one(
            [*self.realize.iter_values, *direct], domains_of(self.loops), self.realize.predicate
        )

    def stores(self) -> Iterator[tuple[stmt.BufferStore, Indices, dict[Var, Range]]]:
        """Visit all stores, with indices over the block's variables and loops inside of it."""
        for found in _stores(self.block, {}, {}):
            if found[0].buffer not in self.tables:
                yield found

    def updates(self) -> bool:
        """True if the block reads what it writes."""
        return not self.reads.keys().isdisjoint(self.writes)

    def is_guarded(self, inner: Sequence[stmt.For]) -> bool:
        """True if a branch or a while loop directly encloses the innermost loops, or is in them."""
        around = len(self.loops) - len(inner)
        return any(depth >= around for depth, _ in self.guards)


def is_unit(domain: Range | None) -> bool:
    """True if a domain is known to have one value."""
    return domain is not None and isinstance(domain.extent, IntImm) and domain.extent.value == 1


def is_one_to_one(
    indices: Sequence[PrimExpr], domains: Mapping[Var, Range], predicate: PrimExpr | bool = True
) -> bool:
    """True if no two values of the variables have the same indices, as far as is known."""
    used = {var: dom for var, dom in domains.items() if not is_unit(dom)}
    if not all(any(mentions(index, (var,)) for index in indices) for var in used):
        return False
    simple = [index for index in indices if mentions(index, used)]
    fixed = {var: dom.min for var, dom in domains.items() if is_unit(dom)}
    simple = [substitute(index, fixed) for index in simple]
    return not simple or not detect_iter_map(simple, used, predicate, IterMapLevel.Bijective).errors


def _stores(
    node: stmt.Stmt, values: dict[Var, PrimExpr], inner: dict[Var, Range]
) -> Iterator[tuple[stmt.BufferStore, Indices, dict[Var, Range]]]:
    match node:
        case stmt.BufferStore(indices=indices):
            yield node, tuple(substitute(index, values) for index in indices), inner
        case stmt.For(loop_var=var, min=first, extent=extent, body=body):
            yield from _stores(body, values, inner | {var: Range.from_min_extent(first, extent)})
        case stmt.BlockRealize(iter_values=bound, block=block):
            new = [substitute(value, values) for value in bound]
            names = [it.var for it in block.iter_vars]
            yield from _stores(block, values | dict(zip(names, new, strict=True)), inner)
        case _:
            for child in node._children():
                if isinstance(child, stmt.Stmt):
                    yield from _stores(child, values, inner)


def _stage_of(state: State, block: stmt.Block, pointers: set[Var]) -> Stage:
    """The stage of a block. Errors: ScheduleError if its accesses are not known.

    `pointers` are the data variables of all buffers.
    """
    accesses = Bodies(pointers)
    is_opaque = False
    try:
        accesses.declared(block)
    except MisuseError as error:
        if not block.reads and not block.writes:
            message = f"the accesses of block {block.name_hint} are not known: {error}"
            raise refused(message) from None
        is_opaque, accesses = True, Bodies(pointers)
        Accesses.declared(accesses, block)
    tables = _tables(state, block)
    reads, writes = (
        {buffer: region for buffer, region in found.items() if buffer not in tables}
        for found in (accesses.reads, accesses.writes)
    )
    realize, loops = state.realize(block), tuple(state.loops(block))
    deciding, guards = _control(state, realize)
    for buffer in deciding:
        reads[buffer] = [None] * buffer.ndim
    return Stage(block, realize, loops, reads, writes, tables, deciding, guards, is_opaque)


def _control(
    state: State, realize: stmt.BlockRealize
) -> tuple[frozenset[Buffer], list[tuple[int, stmt.Stmt]]]:
    """The buffers that decide how a block runs, and its guards."""
    around: list[stmt.Stmt] = []
    for above in state.ancestors(realize):
        if isinstance(above, stmt.Block):
            break
        around.append(above)
    exprs: list[Node] = [realize.predicate, *realize.iter_values]
    guards: list[tuple[int, stmt.Stmt]] = []
    depth = 0
    for node in reversed(around):
        if isinstance(node, (stmt.IfThenElse, stmt.While)):
            guards.append((depth, node))
        depth += isinstance(node, stmt.For)
        exprs += [child for child in children(node) if isinstance(child, PrimExpr)]
    loads = (load for expr in exprs for load in occurrences(expr, BufferLoad))
    return frozenset(load.buffer for load in loads), guards


def _tables(state: State, block: stmt.Block) -> frozenset[Buffer]:
    """The buffers that have the same numbers whenever a block runs, since its init has them.

    No other block uses them.
    """
    reduces = any(it.iter_type == IterVarKind.CommReduce for it in block.iter_vars)
    if block.init is None or reduces:
        return frozenset()
    filled = block.init.seq if isinstance(block.init, stmt.SeqStmt) else (block.init,)
    numbers = [store for store in filled if _is_number(store)]
    places = {(store.buffer, tuple(i.value for i in store.indices)) for store in numbers}  # type: ignore[attr-defined]
    tables = {store.buffer for store in numbers}
    if len(places) < len(numbers):
        return frozenset()
    tables -= {node.buffer for node in walk(block.init) if isinstance(node, BufferLoad)}
    inside = Counter(_accessed(block, tables))
    for buffer, count in Counter(_accessed(state.func.body, tables)).items():
        stores = [s for s in walk(block) if isinstance(s, stmt.BufferStore) and s.buffer is buffer]
        if count != inside[buffer] or len(stores) != sum(s.buffer is buffer for s in numbers):
            tables.discard(buffer)
    return frozenset(tables - set(state.func.buffer_map.values()))


def _is_number(node: stmt.Stmt) -> TypeGuard[stmt.BufferStore]:
    """True if a statement writes a number to an element that is known."""
    return (
        isinstance(node, stmt.BufferStore)
        and isinstance(node.value, (IntImm, FloatImm))
        and all(isinstance(index, IntImm) for index in node.indices)
    )


def _accessed(node: stmt.Stmt, buffers: Container[Buffer]) -> Iterator[Buffer]:
    for found in walk(node):
        if isinstance(found, (BufferLoad, stmt.BufferStore)) and found.buffer in buffers:
            yield found.buffer


def _buffers(state: State) -> set[Buffer]:
    """All buffers. Errors: ScheduleError if two of them are views of the same memory."""
    views = {match.buffer for block in state.blocks() for match in block.match_buffers}
    found = {item for item in walk(state.func) if isinstance(item, Buffer)} - views
    owners: dict[Var, Buffer] = {}
    for buffer in found:
        other = owners.setdefault(buffer.data, buffer)
        if other is not buffer:
            raise refused(f"buffers {other.name} and {buffer.name} share memory")
    return found | views


def stages_in(state: State, scope: stmt.Stmt) -> list[Stage]:
    """The stages directly inside of a block or loop, in program order.

    Errors: ScheduleError: there are other statements with effects.
    """
    for node in bare_statements(scope):
        if isinstance(node, stmt.BufferStore) or (
            isinstance(node, stmt.Evaluate) and isinstance(node.value, Call)
        ):
            raise refused("a statement is not in a block, so its dependences are not known", node)
    return listed_stages(state, scope)


def listed_stages(state: State, scope: stmt.Stmt) -> list[Stage]:
    """The stages directly inside of a node, which may have other statements."""
    realizes = child_blocks(scope)
    pointers = {buffer.data for buffer in _buffers(state)} if realizes else set()
    return [_stage_of(state, realize.block, pointers) for realize in realizes]


def bare_statements(scope: stmt.Stmt) -> Iterator[stmt.Stmt]:
    """Visit the statements below a block or loop that are outside of the blocks in it."""

    def below(node: stmt.Stmt) -> Sequence[stmt.Stmt]:
        return () if isinstance(node, stmt.BlockRealize) else statements(node)

    roots = [scope.block] if isinstance(scope, stmt.BlockRealize) else [scope]
    return preorder(roots, below)


def stage_in_scope(state: State, block: stmt.Block) -> tuple[list[Stage], Stage]:
    """The stages in the scope of a block, and its own."""
    stages = stages_in(state, state.scope(block))
    return stages, next(stage for stage in stages if stage.block is block)


# --- the conditions on one stage


def check_only_content(
    stage: Stage, loops: Sequence[stmt.For], kinds: Container[stmt.ForKind] | None = None
) -> None:
    """Errors: ScheduleError if loops contain more than the block, or are annotated.

    `kinds` are those that the loops may have; without any, annotations are allowed, too.
    """
    for outer, inner in zip(loops, (*loops[1:], stage.realize), strict=True):
        if outer.body is not inner:
            raise refused(f"there is more than block {stage.name} in the loops around it", outer)
        if kinds is not None and (outer.annotations or outer.kind not in kinds):
            raise refused(f"loop {outer.loop_var.name} is annotated or not serial", outer)


def check_plain_iterations(stage: Stage, loops: Sequence[stmt.For]) -> None:
    """Errors: ScheduleError if more than the predicate guards the iterations of loops.

    `loops` are the innermost ones of the block.
    """
    if stage.deciding or stage.is_guarded(loops[1:]):
        raise refused(
            f"a branch, or an element of a buffer, decides whether block {stage.name} runs",
            stage.block,
        )


def check_own_variables(stage: Stage) -> None:
    """Errors: ScheduleError if the block uses a loop variable other than through its own."""
    loops = {loop.loop_var for loop in stage.loops}
    if any(var in loops for var in occurrences(stage.block, Var)):
        raise refused(f"block {stage.name} uses a loop variable directly", stage.block)


def check_kinds(stage: Stage) -> None:
    """Errors: ScheduleError if a block variable is neither spatial nor a reduction."""
    for it in stage.block.iter_vars:
        if it.iter_type not in (IterVarKind.DataPar, IterVarKind.CommReduce):
            raise refused(
                f"variable {it.var.name} of block {stage.name} is {it.iter_type.name}, expected a "
                "spatial or reduction variable",
                stage.block,
            )


def check_decided_before(stage: Stage) -> None:
    """Errors: ScheduleError if a buffer that the block writes guards or parametrises its runs."""
    for buffer in stage.deciding & stage.writes.keys():
        raise refused(f"block {stage.name} writes {buffer.name}, which decides how it runs")


def check_own_dependence(stage: Stage) -> None:
    """Errors: ScheduleError if runs for different spatial values may depend on each other.

    They do not if each writes its own elements, and reads only those of the written buffers.
    """
    check_kinds(stage)
    check_decided_before(stage)
    if stage.is_opaque:
        raise refused(
            f"block {stage.name} uses pointers, so only its declared regions are known", stage.block
        )
    spatial = {it.var: it.dom for it in stage.iters(IterVarKind.DataPar) if it.dom is not None}
    spatial |= domains_of(stage.direct_loops())
    reductions = {it.var for it in stage.block.iter_vars if it.iter_type == IterVarKind.CommReduce}
    for store, indices, inner in stage.stores():
        if any(mentions(index, reductions) for index in indices):
            raise refused(
                f"block {stage.name} writes {store.buffer.name} at an index that depends on a "
                "reduction variable",
                stage.block,
            )
        used = {v: d for v, d in inner.items() if any(mentions(i, (v,)) for i in indices)}
        if not is_one_to_one(indices, spatial | used):
            raise refused(
                f"block {stage.name} may write an element of {store.buffer.name} for several "
                "values of its spatial variables",
                stage.block,
            )
    for (first, a, inner), (second, b, other) in combinations(stage.stores(), 2):
        if first.buffer is second.buffer and _may_meet(a, b, spatial, inner | other):
            raise refused(
                f"block {stage.name} may write an element of {first.buffer.name} by several stores "
                "for several values of its spatial variables",
                stage.block,
            )
    check_own_elements(stage)
    read_elsewhere = {b for b in stage.writes if b in stage.reads} - {
        store.buffer for store, _ in own_loads(stage)
    }
    for buffer in read_elsewhere:
        raise refused(f"block {stage.name} reads and writes {buffer.name}", stage.block)


def _may_meet(
    a: Indices, b: Indices, spatial: Mapping[Var, Range], inner: Mapping[Var, Range]
) -> bool:
    """True if two stores may write one element for different values of spatial variables."""
    domains = {**spatial, **inner}
    prove_equal = analyzer_of(domains).can_prove_equal
    alike = [x for x, y in zip(a, _with_loops_of(a, b, inner), strict=True) if prove_equal(x, y)]
    used = {var: dom for var, dom in inner.items() if any(mentions(i, (var,)) for i in alike)}
    if is_one_to_one(alike, {**spatial, **used}):
        return False
    others = {var: var.renamed(var.name) for var in domains}
    analyzer = analyzer_of(domains | {others[var]: dom for var, dom in domains.items()})
    return not any(
        analyzer.can_prove(ops.compare(NE, x, substitute(y, others)))
        for x, y in zip(a, b, strict=True)
    )


def _with_loops_of(a: Indices, b: Indices, inner: Mapping[Var, Range]) -> Indices:
    """The indices `b` over the loops of `a` instead of its own, where their domains are equal."""
    mine, other = (
        dict.fromkeys(v for index in indices for v in occurrences(index, Var) if v in inner)
        for indices in (a, b)
    )
    if not mine.keys().isdisjoint(other):
        return b
    equal = Analyzer().can_prove_equal
    renamed: dict[Var, PrimExpr] = {
        y: x
        for x, y in zip(mine, other, strict=False)
        if equal(inner[x].min, inner[y].min) and equal(inner[x].extent, inner[y].extent)
    }
    return tuple(substitute(index, renamed) for index in b)


def check_own_elements(stage: Stage) -> None:
    """Errors: ScheduleError if a block reads other elements of a buffer than those it writes."""
    for store, loads in own_loads(stage):
        for load in loads:
            if load.indices != store.indices and not _same(load.indices, store.indices):
                raise refused(
                    f"block {stage.name} reads {load}, but writes "
                    f"{BufferLoad(store.buffer, store.indices)}",
                    stage.block,
                )


def _same(a: Indices, b: Indices) -> bool:
    return len(a) == len(b) and all(x is y or x.same_as(y) for x, y in zip(a, b, strict=True))


def own_loads(stage: Stage) -> list[tuple[stmt.BufferStore, list[BufferLoad]]]:
    """Each store with the loads, in its block, of the buffer that it writes."""
    found = []
    leaves = [stage.block, *(n for n in walk(stage.block.body) if isinstance(n, stmt.Block))]
    for block in leaves:
        stores = [s for s in _own_statements(block) if isinstance(s, stmt.BufferStore)]
        loads = [
            load
            for s in _own_statements(block)
            for e in s._children()
            if isinstance(e, PrimExpr)
            for load in occurrences(e, BufferLoad)
        ]
        for store in stores:
            if store.buffer in stage.tables:
                continue
            mine = [load for load in loads if load.buffer is store.buffer]
            found.append((store, mine))
    return found


def _own_statements(block: stmt.Block) -> list[stmt.Stmt]:
    """The statements of a block that are not in one inside of it."""
    roots = [block.body, *([] if block.init is None else [block.init])]
    return [*preorder(roots, lambda s: () if isinstance(s, stmt.Block) else statements(s))]


def check_dominant(stage: Stage, others: Sequence[Stage]) -> None:
    """Errors: ScheduleError if another stage writes a buffer that `stage` writes."""
    for other in others:
        if other.block is stage.block:
            continue
        for buffer in stage.writes:
            if buffer in other.writes:
                raise refused(
                    f"blocks {stage.name} and {other.name} both write {buffer.name}", other.block
                )


def check_pure_stage(stage: Stage, others: Sequence[Stage], *, reduction: bool = True) -> None:
    """Errors: ScheduleError if `stage` is not complete, nor a reduction where that is allowed.

    Either is the only one that writes its buffers, and what it writes depends on its inputs alone.
    """
    check_own_dependence(stage)
    check_dominant(stage, others)
    if stage.updates() or stage.iters(IterVarKind.CommReduce) or stage.block.init is not None:
        if not reduction:
            raise refused(f"block {stage.name} is a reduction, expected none", stage.block)
        if stage.block.init is None:
            raise refused(f"the reduction {stage.name} has no T.init()", stage.block)
        if not stage.runs_once():
            raise refused(
                f"the reduction {stage.name} may run twice for the same values of its variables",
                stage.block,
            )
        check_init_runs(stage)


def check_init_first(stage: Stage) -> None:
    """Errors: ScheduleError if the first iteration of a reduction is not the one with the init."""
    reductions = stage.iters(IterVarKind.CommReduce)
    if stage.block.init is None or not reductions:
        return
    values = stage.values()
    bound = [values[it.var] for it in reductions]
    detected = detect_iter_map(bound, domains_of(stage.loops), True, IterMapLevel.NoCheck)
    can_prove = Analyzer().can_prove
    if detected.errors or not all(
        it.dom is not None
        and Analyzer().can_prove_equal(index.base, it.dom.min)
        and all(can_prove(ops.compare(GT, arg.scale, 0)) for arg in index.args)
        for it, index in zip(reductions, detected.indices, strict=True)
    ):
        raise refused(
            f"the first iteration of the reduction {stage.name} is not known to be the one that "
            "runs its init",
            stage.block,
        )


def check_init_runs(stage: Stage) -> None:
    """Errors: ScheduleError if the init of a reduction may be skipped, or not come first.

    Then the block updates earlier values, or its iterations are ordered.
    """
    check_init_first(stage)
    relevant = stage.reduction_loops()
    if stage.block.init is None or not relevant:
        return
    names = {loop.loop_var for loop in relevant}
    inner = stage.loops[stage.loops.index(relevant[0]) + 1 :]
    guards = [guard for depth, guard in stage.guards if depth > len(stage.loops) - len(inner) - 1]
    if any(
        mentions(child, names) or next(occurrences(child, BufferLoad), None) is not None
        for guard in guards
        for child in children(guard)
        if isinstance(child, PrimExpr)
    ):
        raise _skipped(stage, "a branch")
    values = stage.values()
    spatial = [values[it.var] for it in stage.iters(IterVarKind.DataPar)]
    shared = {var for var in names if any(mentions(value, (var,)) for value in spatial)}
    for test in conjuncts(stage.realize.predicate):
        loads = next(occurrences(test, BufferLoad), None) is not None
        if (mentions(test, names) or loads) and (
            loads or mentions(test, shared) or not _holds_first(stage, test, relevant)
        ):
            raise _skipped(stage, f"the predicate {test}")


def _holds_first(stage: Stage, test: PrimExpr, loops: Sequence[stmt.For]) -> bool:
    """True if a test of a block holds in the first iteration of loops, if they have any.

    One that mentions other loops, too, needs to hold there only if it does in another iteration.
    """
    first: dict[Var, PrimExpr] = {loop.loop_var: loop.min for loop in loops}
    others = [loop for loop in stage.loops if loop not in loops]
    analyzer = Analyzer()
    with ExitStack() as known:
        for loop in stage.loops:
            known.enter_context(analyzer.constraint_scope(ops.compare(GT, loop.extent, 0)))
        for var, domain in domains_of(stage.loops).items():
            analyzer.bind(var, domain)
        if mentions(test, {loop.loop_var for loop in others}):
            known.enter_context(analyzer.constraint_scope(test))
        return analyzer.can_prove(substitute(test, first))


def _skipped(stage: Stage, what: str) -> ScheduleError:
    return refused(
        f"{what} may skip the iteration of the reduction {stage.name} that runs its init",
        stage.block,
    )


def reorders_reduction(stage: Stage, before: Sequence[stmt.For], after: Sequence[stmt.For]) -> bool:
    """True if the relative order of a reduction's loops changes."""
    relevant = {loop.loop_var for loop in stage.reduction_loops()}
    old = [loop.loop_var for loop in before if loop.loop_var in relevant]
    return old != [loop.loop_var for loop in after if loop.loop_var in relevant]


def check_commutes(stage: Stage) -> None:
    """Errors: ScheduleError if the updates of a reduction may not be reordered."""
    if not is_commutative(stage.block):
        raise refused(
            f"block {stage.name} is not a known commutative reduction, so the order of its "
            "reduction loops has to stay",
            stage.block,
        )


# --- conditions on the reads of a stage


def shared_loops(a: Stage, b: Stage) -> list[stmt.For]:
    """The common loops of both stages."""
    return [loop for loop in a.loops if loop in b.loops]


def check_stable_inputs(
    state: State,
    stage: Stage,
    stages: Sequence[Stage],
    check: Callable[[Stage, Sequence[Stage]], None] = check_pure_stage,
) -> None:
    """Errors: ScheduleError if an element that `stage` reads may have another value later.

    It does not if it is written before, by stages that share no loop with `stage` or by one whose
    values are final when they are stored, which `check` decides.
    """
    for buffer in stage.reads:
        if buffer in stage.writes:
            continue
        for writer in stages:
            if writer.block is stage.block or buffer not in writer.writes:
                continue
            if state.position(writer.block) > state.position(stage.block):
                raise refused(
                    f"block {writer.name} writes {buffer.name} after block {stage.name} reads it",
                    writer.block,
                )
            if shared_loops(writer, stage):
                check(writer, stages)
                check_no_partial_reads(writer, [stage])


def check_no_partial_reads(stage: Stage, readers: Sequence[Stage]) -> None:
    """Errors: ScheduleError if one of `readers` sees an incomplete reduction."""
    relevant = stage.reduction_loops()
    for reader in readers:
        for loop in shared_loops(stage, reader):
            if loop in relevant:
                raise refused(
                    f"block {reader.name} is inside of loop {loop.loop_var.name}, over which "
                    f"block {stage.name} reduces",
                    reader.block,
                )


def covers_domain(stage: Stage) -> bool:
    """True if the loops run through all values of the block variables, as far as is known.

    That is where its `condition_outside` of the loops holds.
    """
    values = stage.realize.iter_values
    if stage.deciding or stage.is_guarded(stage.loops):
        return False
    if _may_never_run(stage, stage.loops, values):
        return False
    detected = detect_iter_map(
        values, domains_of(stage.loops), stage.realize.predicate, IterMapLevel.Surjective
    )
    if detected.errors:
        return False
    analyzer = Analyzer()
    return all(
        it.dom is not None
        and _has_no_gaps(index)
        and analyzer.can_prove_equal(minimum_of(index), it.dom.min)
        and analyzer.can_prove_equal(stop_of(index), it.dom.min + it.dom.extent)
        for it, index in zip(stage.block.iter_vars, detected.indices, strict=True)
    )


def _has_no_gaps(index: IterSumExpr) -> bool:
    """True if a surjective index has every value from its minimum to its maximum."""
    count = prod((arg.extent for arg in index.args), start=ops.const(1, index.dtype))
    size = stop_of(index) - minimum_of(index)
    return Analyzer().can_prove_equal(size, count)


def _may_never_run(stage: Stage, loops: Sequence[stmt.For], indices: Sequence[PrimExpr]) -> bool:
    """True if loops that are in none of the `indices` may have no iteration that runs.

    Those of a reduction with an init may, as that runs all the same.
    """
    reduced = [] if stage.block.init is None else stage.reduction_loops()
    unused = [loop for loop in loops if not any(mentions(i, (loop.loop_var,)) for i in indices)]
    free = [loop for loop in unused if loop not in reduced]
    names = {loop.loop_var for loop in free}
    used = {loop.loop_var for loop in loops if loop not in unused}
    return any(not Analyzer().can_prove(ops.compare(GT, loop.extent, 0)) for loop in free) or any(
        mentions(test, names) and (mentions(test, used) or not _holds_first(stage, test, free))
        for test in conjuncts(stage.realize.predicate)
    )


def check_unconditional(stage: Stage) -> None:
    """Errors: ScheduleError if a block may not run for all values of its variables."""
    if not covers_domain(stage):
        raise refused(f"the loops of block {stage.name} do not cover its variables", stage.block)
    condition = condition_outside(stage, stage.loops)
    if not Analyzer().can_prove(condition):
        raise refused(f"block {stage.name} has the condition {condition}", stage.block)


def condition_outside(stage: Stage, loops: Sequence[stmt.For]) -> PrimExpr:
    """The conjuncts of the predicate of `stage` that do not depend on `loops`."""
    inside = {loop.loop_var for loop in loops}
    tests = conjuncts(stage.realize.predicate)
    return ops.all_of(True, *(test for test in tests if not mentions(test, inside)))


def _holds_before(test: PrimExpr, ends: Sequence[tuple[PrimExpr, PrimExpr]]) -> bool:
    """True if a test is that an index is below a bound, which is at least its stop."""
    return isinstance(test, tir.LT) and any(
        bool(test.a == index) and Analyzer().can_prove_greater_equal(test.b - stop, 0)
        for index, stop in ends
    )


def written_box(
    stage: Stage,
    buffer: Buffer,
    loops: Sequence[stmt.For],
    stops: Sequence[PrimExpr | None] | None = None,
) -> list[Range] | None:
    """The elements of `buffer` that `stage` writes in `loops`, if all of a box is known.

    It writes them where its `condition_outside` of the loops holds, which reads no buffer. Those at
    or after one of `stops`, each of a dimension, may be in the box without being written.
    """
    if stage.deciding or stage.is_guarded(loops):
        return None
    found = [item for item in stage.stores() if item[0].buffer is buffer]
    places = {indices for _, indices, _ in found}
    guards = (node for node in walk(stage.block) if isinstance(node, (stmt.IfThenElse, stmt.While)))
    inner_blocks = [node for node in walk(stage.block.body) if isinstance(node, stmt.BlockRealize)]
    whole = all(isinstance(b.predicate, IntImm) and b.predicate.value for b in inner_blocks)
    inside = {loop.loop_var for loop in loops}
    outside = {loop.loop_var for loop in stage.loops} - inside
    if len(places) != 1 or next(guards, None) is not None or not whole:
        return None
    ((_, indices, inner), *_) = found
    values = stage.values()
    at = [substitute(index, values) for index in indices]
    ends = [(i, stop) for i, stop in zip(at, stops or (), strict=False) if stop is not None]
    tests = [
        test
        for test in conjuncts(stage.realize.predicate)
        if mentions(test, inside) and not _holds_before(test, ends)
    ]
    if any(mentions(test, outside) for test in tests):
        return None
    nested = [node for node in walk(stage.block.body) if isinstance(node, stmt.For)]
    if _may_never_run(stage, [*loops, *nested], at):
        return None
    detected = detect_iter_map(
        at, domains_of(loops) | inner, ops.all_of(True, *tests), IterMapLevel.Surjective
    )
    if detected.errors or not all(map(_has_no_gaps, detected.indices)):
        return None
    simplify = Analyzer().simplify
    bounds = [(simplify(minimum_of(i)), simplify(stop_of(i))) for i in detected.indices]
    box = [Range.from_min_extent(low, simplify(stop - low)) for low, stop in bounds]
    return [
        Range.from_min_extent(ops.cast_to(r.min, s.dtype), ops.cast_to(r.extent, s.dtype))
        for r, s in zip(box, buffer.shape, strict=True)
    ]
