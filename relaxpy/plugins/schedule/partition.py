"""loop_partition, merge, pad_einsum and decompose_padding: loops in parts, and padded extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import cast

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.analyzer import Analyzer, ConstIntBound
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences, rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer, outside_indices
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_own_variables,
    check_plain_iterations,
    check_pure_stage,
    is_unit,
    reduction_of,
    shared_loops,
    stage_in_scope,
    stages_in,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    below,
    child_blocks,
    copied_block,
    domains_of,
    refused,
    serial_nest,
    spatial_block,
    substituted,
)
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.cache import with_buffer
from relaxpy.plugins.schedule.change_layout import check_trivial_loops
from relaxpy.plugins.schedule.loops import check_no_carried, check_parallel, check_plain
from relaxpy.support.dataclass import replace

_LIMIT = 2**31 - 1


def merge(state: State, loops: Sequence[stmt.For]) -> stmt.For:
    """Replace consecutive loops, with their enclosing loops, by one nest."""
    for loop in loops:
        check_plain(loop)
    if len(loops) < 2:
        raise refused("merge takes at least two loops", *loops)
    chains = [[*state.loops(loop), loop] for loop in loops]
    if len({id(state.scope(loop)) for loop in loops}) > 1:
        raise refused("the loops are in different blocks", loops[1])
    shared = 0
    while all(len(chain) > shared and chain[shared] is chains[0][shared] for chain in chains):
        shared += 1
    own = [chain[shared:] for chain in chains]
    if len({len(chain) for chain in own}) > 1 or not own[0]:
        raise refused("the loops are not at the same level", loops[1])
    analyzer = Analyzer()
    for level in zip(*own, strict=True):
        for outer in level:
            check_plain(outer)
            if not analyzer.can_prove_equal(outer.extent, level[0].extent):
                raise refused(
                    f"loops {level[0].loop_var.name} and {outer.loop_var.name} have different "
                    "extents",
                    outer,
                )
    for chain in own:
        for outer, inner in pairwise(chain):
            if outer.body is not inner:
                raise refused(
                    f"loop {inner.loop_var.name} is not the only content of loop "
                    f"{outer.loop_var.name}",
                    inner,
                )
    parent = state.parent(own[0][0])
    if not isinstance(parent, stmt.SeqStmt) or any(state.parent(c[0]) is not parent for c in own):
        raise refused("the loops are not after each other", loops[1])
    places = [next(k for k, s in enumerate(parent.seq) if s is c[0]) for c in own]
    if places != list(range(places[0], places[0] + len(places))):
        raise refused("there are other statements between the loops", loops[1])
    new_vars = [at.loop_var.renamed(f"{at.loop_var.name}_m") for at in own[0]]
    numbers = [k for k, chain in enumerate(own) for _ in child_blocks(chain[-1])]
    renewed: dict[stmt.Block, stmt.Block] = {}
    bodies = []
    for chain in own:
        names: dict[Var, PrimExpr] = {
            at.loop_var: ops.cast_to(var, at.loop_var.dtype)
            for at, var in zip(chain, new_vars, strict=True)
        }
        bodies.append(substituted(chain[-1].body, names, renewed))
    nest: stmt.Stmt = stmt.stmt_seq(*bodies)
    for at, var in reversed(list(zip(own[0], new_vars, strict=True))):
        nest = stmt.For(var, at.min, at.extent, stmt.ForKind.SERIAL, nest)
    state.replace({own[0][0]: nest, **{chain[0]: None for chain in own[1:]}}, renewed)
    merged = state.loop(new_vars[-1])
    outermost = state.loop(new_vars[0])
    assert merged is not None
    assert outermost is not None
    check_parallel(state, outermost, reductions=True)
    whole = [*state.loops(merged), merged][shared:]
    members = zip(numbers, stages_in(state, merged), strict=True)
    for (first, a), (second, b) in combinations(members, 2):
        if first != second:
            check_no_carried(a, b, whole)
    return merged


def loop_partition(
    state: State, loop: stmt.For, factors: Sequence[ExprLike | None]
) -> list[stmt.For]:
    """Replace a loop by one for each factor, after each other, each in a block of its own."""
    check_plain(loop)
    dtype = loop.loop_var.dtype
    ends = _ends(loop, factors)
    domains = domains_of(state.loops(loop))
    names = [f"{loop.loop_var.name}{k}" for k in range(len(ends))]
    blocks: list[stmt.Stmt] = []
    renewed: dict[stmt.Block, stmt.Block] = {}
    title = _title(loop)
    start: PrimExpr = ops.const(0, dtype)
    new_loops: list[stmt.For] = []
    for name, end in zip(names, ends, strict=True):
        var = Var(name, dtype)
        extent = Analyzer().simplify(end - start)
        known = domains | {var: Range.from_min_extent(start, extent)}
        later = None if not new_loops else var
        body = _Copied(loop.loop_var, var, name, known, later).visit(loop.body)
        assert isinstance(body, stmt.Stmt)
        new_loops.append(stmt.For(var, start, extent, stmt.ForKind.SERIAL, body))
        blocks.append(_opaque(f"{title}_{name}_partition", new_loops[-1]))
        start = end
    whole = _opaque(f"{title}_{loop.loop_var.name}_common", stmt.stmt_seq(*blocks))
    state.replace({loop: whole}, renewed)
    found = [state.loop(new.loop_var) for new in new_loops]
    return [at for at in found if at is not None]


def _opaque(name: str, body: stmt.Stmt) -> stmt.BlockRealize:
    return stmt.BlockRealize((), ops.const(True, BOOL), stmt.Block((), (), (), name, body))


def _title(loop: stmt.For) -> str:
    block = next((node for node in below(loop.body) if isinstance(node, stmt.Block)), None)
    return loop.loop_var.name if block is None else block.name_hint


def _ends(loop: stmt.For, factors: Sequence[ExprLike | None]) -> list[PrimExpr]:
    """The ends of the iterations of each factor; a last one has the rest."""
    dtype = loop.loop_var.dtype
    simplify = Analyzer().simplify
    given = [None if f is None else ops.cast_to(ops.convert(f), dtype) for f in factors]
    if given.count(None) > 1:
        raise refused("at most one of the factors is None", loop)
    for factor in given:
        if isinstance(factor, IntImm) and factor.value <= 0:
            raise refused(f"a factor is positive, found {factor.value}", loop)
    total: PrimExpr = ops.const(0, dtype)
    for factor in given:
        total = total if factor is None else total + factor
    rest = simplify(loop.extent - total)
    analyzer = Analyzer()
    if not analyzer.can_prove(rest > 0 if None in given else rest >= 0):
        raise refused(f"the factors exceed the extent {loop.extent} of the loop", loop)
    if None not in given and not analyzer.can_prove_equal(rest, 0):
        given.append(None)
    ends: list[PrimExpr] = []
    end: PrimExpr = ops.const(0, dtype)
    for factor in given:
        end = simplify(end + (rest if factor is None else factor))
        ends.append(end)
    return ends


def _is_finite(*bounds: ConstIntBound) -> bool:
    """True if both ends of all bounds are known, and not those of a datatype."""
    return all(-_LIMIT < bound.min_value <= bound.max_value < _LIMIT for bound in bounds)


class _Copied:
    """Copies statements for a part of the iterations of a loop, with variables of their own.

    `later` is the new variable if the part is not the first one: a reduction over it goes on there,
    without an init.
    """

    def __init__(
        self, old: Var, new: Var, suffix: str, domains: dict[Var, Range], later: Var | None
    ) -> None:
        self.names: dict[Var, PrimExpr] = {old: new}
        self.suffix = suffix
        self.domains = domains
        self.later = later

    def visit(self, item: Node) -> Node:
        """The copy of `item`."""
        if isinstance(item, Var):
            return self.names.get(item, item)
        if item._variable:
            return item
        match item:
            case stmt.For(loop_var=var):
                copy = self.names[var] = var.renamed(var.name)
                self.domains[copy] = Range.from_min_extent(item.min, item.extent)
                return replace(map_children(self.visit, item), loop_var=copy)
            case stmt.BlockRealize(block=block):
                values = tuple(self._expr(value) for value in item.iter_values)
                predicate = self._expr(item.predicate)
                return replace(
                    item, iter_values=values, predicate=predicate, block=self._block(block, values)
                )
            case _:
                return map_children(self.visit, item)

    def _expr(self, expr: PrimExpr) -> PrimExpr:
        new = self.visit(expr)
        assert isinstance(new, PrimExpr)
        return new

    def _block(self, block: stmt.Block, values: Sequence[PrimExpr]) -> stmt.Block:
        own = {it.var: it.var.renamed(it.var.name) for it in block.iter_vars}
        self.names |= own
        iters = tuple(
            IterVar(self.domains.get(value, it.dom), own[it.var], it.iter_type)  # type: ignore[call-overload]
            for it, value in zip(block.iter_vars, values, strict=True)
        )
        goes_on = self.later is not None and any(
            value is self.later and it.iter_type == IterVarKind.CommReduce
            for it, value in zip(block.iter_vars, values, strict=True)
        )
        init = None if goes_on else block.init
        new = map_children(self.visit, replace(block, iter_vars=(), init=init))
        assert isinstance(new, stmt.Block)
        new = replace(new, iter_vars=iters, name_hint=f"{block.name_hint}_{self.suffix}")
        if own:
            new = _with_known_regions(new)
        return replace(
            new,
            reads=tuple(self._region(region, own, values) for region in new.reads),
            writes=tuple(self._region(region, own, values) for region in new.writes),
        )

    def _region(
        self, region: BufferRegion, own: dict[Var, Var], values: Sequence[PrimExpr]
    ) -> BufferRegion:
        """A region with the bounds that it has in all of these iterations."""
        if not own:
            return region
        bound = dict(zip(own.values(), values, strict=True))
        analyzer = analyzer_of(self.domains)
        ranges = []
        for rng in region.region:
            first = substitute(rng.min, bound)
            low = analyzer.const_int_bound(first)
            high = analyzer.const_int_bound(first + ops.sub(rng.extent, 1))
            size = high.max_value - low.min_value + 1
            if not _is_finite(low, high) or size > _LIMIT:
                return region
            dtype = rng.min.dtype
            ends = ops.const(low.min_value, dtype), ops.const(size, dtype)
            ranges.append(Range.from_min_extent(*ends))
        return BufferRegion(region.buffer, tuple(ranges))


def _with_known_regions(block: stmt.Block) -> stmt.Block:
    """`block` with the regions that its body has; one that uses pointers keeps its own."""
    try:
        return with_regions(block)
    except MisuseError:
        return block


_EINSUM = (tir.Var, tir.IntImm, tir.FloatImm, tir.Cast, tir.Add, tir.Sub, tir.Mul, BufferLoad)


def pad_einsum(state: State, block: stmt.Block, padding: Sequence[int]) -> None:
    """Let the extents of a block be multiples, and its operands have copies of these sizes."""
    stages, stage = stage_in_scope(state, block)
    if not isinstance(padding, (list, tuple)) or len(padding) != len(block.iter_vars):
        raise unexpected(
            padding,
            f"padding has a number for each of the {len(block.iter_vars)} variables of block "
            f"{stage.name}",
        )
    factors = [ops.as_int(factor) for factor in padding]
    if any(factor < 1 for factor in factors):
        raise refused(f"padding is positive, found {min(factors)}", block)
    check_trivial_loops(stage)
    check_pure_stage(stage, stages)
    analyzer = Analyzer()
    sizes: dict[Var, PrimExpr] = {}
    extents: dict[Var, PrimExpr] = {}
    for it, factor in zip(block.iter_vars, factors, strict=True):
        assert it.dom is not None
        extents[it.var] = it.dom.extent
        padded = ops.ceildiv(it.dom.extent, factor) * factor
        sizes[it.var] = analyzer.simplify(padded)
    grown = {var for var, size in sizes.items() if not analyzer.can_prove_equal(size, extents[var])}
    accesses = _accesses(stage)
    _check_sum(stage, grown)
    changed = [b for b, indices in accesses.items() if not grown.isdisjoint(indices)]
    changed.sort(key=lambda b: b in stage.writes)
    copies = {
        buffer: decl_buffer(
            [ops.cast_to(sizes[var], var.dtype) for var in accesses[buffer]],
            buffer.dtype,
            f"{buffer.name}_pad",
            scope=buffer.scope(),
        )
        for buffer in changed
    }
    iters = tuple(
        IterVar(Range.from_min_extent(it.dom.min, sizes[it.var]), it.var, it.iter_type)
        for it in block.iter_vars
        if it.dom is not None
    )
    new = replace(block, iter_vars=iters)
    renewed: dict[stmt.Block, stmt.Block] = {}
    for old, copy in copies.items():
        new = with_buffer(new, old, copy, renewed)
    new = with_regions(new)
    nest: stmt.Stmt = replace(stage.realize, block=new)
    for loop, it in reversed(list(zip(stage.loops, block.iter_vars, strict=True))):
        nest = replace(loop, extent=ops.cast_to(sizes[it.var], loop.loop_var.dtype), body=nest)
    before: list[stmt.Stmt] = []
    after: list[stmt.Stmt] = []
    for old, copy in copies.items():
        axes = accesses[old]
        full, inside = ([table[v] for v in axes] for table in (sizes, extents))
        if old in stage.writes:
            after.append(_copied(copy, old, inside, inside, f"{old.name}_pad"))
        else:
            before.append(_copied(old, copy, full, inside, copy.name))
    scope = state.scope(block)
    state.replace({stage.loops[0]: stmt.stmt_seq(*before, nest, *after)}, {block: new})
    state.allocate(scope, *copies.values())


def _accesses(stage: Stage) -> dict[Buffer, tuple[Var, ...]]:
    """The variables by which a block indexes each buffer."""
    block = stage.block
    body = block.body
    if not isinstance(body, stmt.BufferStore) or (
        block.init is not None and not isinstance(block.init, stmt.BufferStore)
    ):
        raise refused(f"block {stage.name} is not one store", block)
    found: dict[Buffer, tuple[Var, ...]] = {}
    variables = {it.var for it in block.iter_vars}
    stores = [body, *([] if block.init is None else [block.init])]
    for node in (*occurrences(body, BufferLoad), *stores):
        assert isinstance(node, (BufferLoad, stmt.BufferStore))
        indices = tuple(index for index in node.indices if index in variables)
        plain = tuple(index for index in indices if isinstance(index, Var))
        known = found.setdefault(node.buffer, plain)
        if len(plain) != len(node.indices) or len(set(plain)) != len(plain) or known != plain:
            raise refused(
                f"block {stage.name} does not access {node.buffer.name} at one tuple of its "
                "variables",
                block,
            )
    return found


def _check_sum(stage: Stage, grown: set[Var]) -> None:
    """Errors: ScheduleError if what is added to a block changes a sum, or cannot be computed."""
    body = stage.block.body
    assert isinstance(body, stmt.BufferStore)
    if any(not isinstance(node, _EINSUM) for node in outside_indices(body.value)):
        raise refused(f"block {stage.name} is not an einsum of products and sums", stage.block)
    reduced = {it.var for it in stage.block.iter_vars if it.iter_type == IterVarKind.CommReduce}
    if grown.isdisjoint(reduced):
        return
    reduction = reduction_of(stage.block)
    loads = [] if reduction is None else list(occurrences(reduction.source, BufferLoad))

    if (
        reduction is None
        or reduction.kind is not tir.Add
        or any(not (grown & reduced) <= set(load.indices) for load in loads)
        or not _vanishes(reduction.source)
    ):
        raise refused(
            f"block {stage.name} is not a sum to which operands of zeros add nothing", stage.block
        )


def _vanishes(value: PrimExpr) -> bool:
    """True if an einsum of elements that are 0 is 0."""
    match value:
        case BufferLoad():
            return True
        case tir.Cast(value=inner):
            return _vanishes(inner)
        case tir.Mul(a=a, b=b):
            return _vanishes(a) or _vanishes(b)
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
            return _vanishes(a) and _vanishes(b)
        case _:
            return ops.is_const(value, 0)


def _copied(
    source: Buffer,
    target: Buffer,
    extents: Sequence[PrimExpr],
    inside: Sequence[PrimExpr],
    name: str,
) -> stmt.Stmt:
    """Loops that copy elements `inside`, and store zeros for the rest of `extents`."""
    loops = {Var(f"ax{k}", size.dtype): Range(size) for k, size in enumerate(extents)}

    def store(variables: Sequence[Var]) -> stmt.BufferStore:
        analyzer = analyzer_of(dict(zip(variables, loops.values(), strict=True)))
        tests = [v < size for v, size in zip(variables, inside, strict=True)]
        needed = [test for test in tests if not analyzer.can_prove(test)]
        value: PrimExpr = BufferLoad(source, variables)
        if needed:
            value = intrin.if_then_else(ops.all_of(*needed), value, ops.const(0, source.dtype))
        return stmt.BufferStore(target, value, tuple(variables))

    block = spatial_block(name, extents, store)
    return serial_nest(loops.items(), stmt.BlockRealize(tuple(loops), ops.all_of(True), block))


def decompose_padding(state: State, block: stmt.Block, loop: stmt.For) -> stmt.Block:
    """Store the value of padding before `loop`, and let `block` store only the rest."""
    stages, stage = stage_in_scope(state, block)
    if loop not in stage.loops:
        raise refused(f"loop {loop.loop_var.name} is not around block {stage.name}", loop)
    check_pure_stage(stage, stages, reduction=False)
    body = block.body
    match body:
        case stmt.BufferStore(
            value=tir.Call(op=Op(name="tir.if_then_else"), args=(condition, value, pad)),
            predicate=None,
        ) if next(occurrences(pad, BufferLoad), None) is None:
            pass
        case _:
            raise refused(
                f"block {stage.name} is not one store of T.if_then_else(condition, value, "
                "padding), where padding reads no buffer",
                block,
            )
    check_own_variables(stage)
    inner = list(stage.loops[stage.loops.index(loop) :])
    check_plain_iterations(stage, inner)
    for other in stages:
        shared = [at for at in shared_loops(stage, other) if at in inner]
        if other is not stage and shared:
            check_no_carried(stage, other, shared)
    assert isinstance(body, stmt.BufferStore)
    iters = list(zip(block.iter_vars, _plain_values(stage, inner), strict=True))
    padded = replace(body, value=pad)
    start, nest = copied_block(
        f"{block.name_hint}_pad_const", iters, padded, stage.realize.predicate, inner, "_pad"
    )
    rest, loops = _shifted(stage, inner, replace(body, value=value), condition)
    state.replace({loop: stmt.stmt_seq(nest, loops)}, {block: rest})
    return start


def _plain_values(stage: Stage, inner: Sequence[stmt.For]) -> list[PrimExpr]:
    """The values of the variables of a block, without those of loops outside that run once."""
    once = [at for at in stage.loops if at not in inner and is_unit(domains_of([at])[at.loop_var])]
    starts: dict[PrimExpr, PrimExpr] = {at.loop_var: at.min for at in once}
    return [starts.get(value, value) for value in stage.realize.iter_values]


def _shifted(
    stage: Stage, inner: Sequence[stmt.For], store: stmt.BufferStore, condition: PrimExpr
) -> tuple[stmt.Block, stmt.Stmt]:
    """A block of `store` where a condition holds, and the `inner` loops around it.

    Its variables begin at the lower bounds of the condition. Loops whose variable is one of the
    block, alone in bounds of the condition, run between these; others test them.
    """
    block, realize = stage.block, stage.realize
    bounds, others = _bounds(block, conjuncts(condition))
    alone = all(a.body is b for a, b in zip(inner, (*inner[1:], realize), strict=True))
    analyzer = analyzer_of(domains_of(stage.loops))
    extents: dict[Var, PrimExpr] = {}
    moved: dict[Var, PrimExpr] = {}
    values: dict[Var, PrimExpr] = {}
    indices: dict[Var, PrimExpr] = {}
    tests: list[PrimExpr] = []
    iters: list[IterVar] = []
    for it, at in zip(block.iter_vars, _plain_values(stage, inner), strict=True):
        loop = next((outer for outer in inner if outer.loop_var is at), None)
        low, high = bounds.get(it.var, (0, 0))
        values[it.var] = indices[it.var] = at
        if low < high:
            if alone and loop is not None and _is_own(stage, loop, it):
                extents[loop.loop_var] = ops.const(high - low, loop.loop_var.dtype)
                indices[it.var] = at + low
            else:
                limits = (ops.compare(tir.LE, low, at), at < high)
                tests += (test for test in limits if not analyzer.can_prove(test))
                values[it.var] = at - low
            moved[it.var] = analyzer.simplify(it.var + low)
            it = replace(it, dom=Range(ops.const(high - low, it.var.dtype)))
        elif it.var in bounds:
            others += (it.var >= low, it.var < high)
        iters.append(it)

    def moved_index(index: PrimExpr) -> PrimExpr:
        new = substitute(index, moved)
        return index if new is index else Analyzer().simplify(new)

    def visit(node: Node) -> Node:
        if isinstance(node, BufferLoad):
            return BufferLoad(node.buffer, tuple(map(moved_index, node.indices)), node.predicate)
        return moved.get(node, node) if isinstance(node, Var) else map_children(visit, node)

    value = visit(store.value)
    assert isinstance(value, PrimExpr)
    body = replace(store, value=value, indices=tuple(map(moved_index, store.indices)))
    rest = with_regions(replace(block, iter_vars=tuple(iters), body=body))
    tests += (substitute(test, indices) for test in others)
    predicate = ops.all_of(*tests, *conjuncts(realize.predicate), True)
    nest: stmt.Stmt = stmt.BlockRealize(tuple(values.values()), predicate, rest)
    if not alone:  # other blocks stay where they are
        new = rewrite(inner[0], lambda node: nest if node is realize else None)
        return rest, cast("stmt.Stmt", new)
    for loop in reversed(inner):
        nest = replace(loop, extent=extents.get(loop.loop_var, loop.extent), body=nest)
    return rest, nest


def _bounds(
    block: stmt.Block, tests: Iterable[PrimExpr]
) -> tuple[dict[Var, tuple[int, int]], list[PrimExpr]]:
    """The ranges to which tests limit variables of a block, and the tests that do not do so."""
    whole = {
        it.var: (0, it.dom.extent.value)
        for it in block.iter_vars
        if it.dom is not None and ops.is_const(it.dom.min, 0) and isinstance(it.dom.extent, IntImm)
    }
    found, others = dict(whole), list[PrimExpr]()
    for test in tests:
        match test:
            case (
                tir.LT(a=Var() as var, b=IntImm(value=n))
                | tir.GT(a=IntImm(value=n), b=Var() as var)
            ) if var in found:
                found[var] = found[var][0], min(found[var][1], n)
            case (
                tir.LE(a=Var() as var, b=IntImm(value=n))
                | tir.GE(a=IntImm(value=n), b=Var() as var)
            ) if var in found:
                found[var] = found[var][0], min(found[var][1], n + 1)
            case (
                tir.GE(a=Var() as var, b=IntImm(value=n))
                | tir.LE(a=IntImm(value=n), b=Var() as var)
            ) if var in found:
                found[var] = max(found[var][0], n), found[var][1]
            case (
                tir.GT(a=Var() as var, b=IntImm(value=n))
                | tir.LT(a=IntImm(value=n), b=Var() as var)
            ) if var in found:
                found[var] = max(found[var][0], n + 1), found[var][1]
            case _:
                others.append(test)
    return {var: at for var, at in found.items() if at != whole[var]}, others


def _is_own(stage: Stage, loop: stmt.For, it: IterVar) -> bool:
    """True if a loop runs through the domain of `it`, and decides nothing else of the block."""
    realize = stage.realize
    uses = [
        value
        for value in (*realize.iter_values, realize.predicate)
        if mentions(value, (loop.loop_var,))
    ]
    equal = Analyzer().can_prove_equal
    return (
        len(uses) == 1
        and ops.is_const(loop.min, 0)
        and it.dom is not None
        and equal(loop.extent, it.dom.extent)
    )
