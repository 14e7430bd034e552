"""Primitives that change the shape of loop nests: split, fuse, reorder and add_unit_loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.traverse import children, occurrences
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import bare_statements
from relaxpy.ir.tir.rewrite.state import (
    State,
    loops_between,
    nested,
    outermost_blocks,
    refused,
    substituted,
    with_simple_bindings,
)
from relaxpy.ir.tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    LetStmt,
)
from relaxpy.ir.tir.substitution import mentions
from relaxpy.plugins.schedule.conditions import check_reorder


def split(
    state: State,
    loop: For,
    factors: Sequence[ExprLike | None],
    *,
    preserve_unit_iters: bool,
    disable_predication: bool,
) -> list[For]:
    """Replace `loop` by one loop per factor; the blocks get a predicate where it may overshoot."""
    check_plain(loop)
    dtype = loop.loop_var.dtype
    sizes = _inferred(loop, factors)
    analyzer = Analyzer()
    value: PrimExpr = ops.const(0, dtype)
    domains = {Var(f"{loop.loop_var.name}_{k}", dtype): Range(size) for k, size in enumerate(sizes)}
    for var, domain in domains.items():
        value = ops.add(ops.mul(value, domain.extent), var)
        analyzer.bind(var, domain)
    inside = ops.compare(tir.LT, value, loop.extent)
    predicate = None if disable_predication or analyzer.can_prove(inside) else inside
    if predicate is not None:
        _check_only_blocks(loop)
    renewed: dict[Block, Block] = {}
    body = substituted(loop.body, {loop.loop_var: value}, renewed)
    new = [For(var, d.min, d.extent, ForKind.SERIAL, body) for var, d in domains.items()]
    around = [*state.loops(loop), *new]
    body = with_simple_bindings(
        body, around, renewed, predicate, keep_unit_iters=preserve_unit_iters
    )
    nest = nested(new, body)
    state.replace({loop: nest}, renewed)
    return loops_between(nest, body)


def _check_only_blocks(loop: For) -> None:
    """Errors: ScheduleError if more iterations would do more than the blocks in them."""
    bare = list(bare_statements(loop))
    names = {loop.loop_var} | {node.var for node in bare if isinstance(node, LetStmt)}
    for node in bare:
        has_effect = isinstance(node, (BufferStore, Evaluate, AssertStmt))
        loads = (
            load
            for child in children(node)
            if isinstance(child, PrimExpr)
            for load in occurrences(child, BufferLoad)
        )
        if has_effect or any(mentions(load, names) for load in loads):
            raise refused(
                f"loop {loop.loop_var.name} would have more iterations, and it has statements that "
                "are in no block, or reads buffers for conditions of blocks",
                node,
            )


def _inferred(loop: For, factors: Sequence[ExprLike | None]) -> list[PrimExpr]:
    """Return the factors with the one that is None inferred."""
    dtype = loop.loop_var.dtype
    if not isinstance(factors, (list, tuple)) or not factors:
        raise unexpected(factors, "factors is a list")
    given = [None if f is None else ops.cast_to(ops.convert(f), dtype) for f in factors]
    known = [f for f in given if f is not None]
    for factor in known:
        if isinstance(factor, IntImm) and factor.value <= 0:
            raise refused(f"a factor is positive, found {factor.value}", loop)
    if len(known) < len(given) - 1:
        raise refused("at most one of the factors is None", loop)
    product = prod(known, start=ops.const(1, dtype))
    if len(known) < len(given):
        rest = Analyzer().simplify(ops.ceildiv(loop.extent, product))
        return [rest if f is None else f for f in given]
    if not Analyzer().can_prove(ops.compare(tir.GE, product, loop.extent)):
        raise refused(
            f"the product {product} of the factors is not known to reach the extent "
            f"{loop.extent} of loop {loop.loop_var.name}",
            loop,
        )
    return known


def fuse(state: State, loops: Sequence[For], *, preserve_unit_iters: bool) -> For:
    """Replace loops, each the only content of the one before, by one loop over their product."""
    if not loops:
        raise MisuseError("fuse takes at least one loop, found none")
    for loop in loops:
        check_plain(loop)
    for outer, inner in pairwise(loops):
        if outer.body is not inner:
            raise refused(
                f"loop {inner.loop_var.name} is not the only content of loop {outer.loop_var.name}",
                inner,
            )
    _check_independent(loops, outer=True)
    _check_inits_of_nothing(loops)
    dtype = max((loop.loop_var.dtype for loop in loops), key=lambda kind: kind.bits)
    fused = Var("_".join(loop.loop_var.name for loop in loops) + "_fused", dtype)
    lower: PrimExpr = ops.const(1, dtype)
    values: dict[Var, PrimExpr] = {}
    for k, loop in reversed(list(enumerate(loops))):
        extent = ops.cast_to(loop.extent, dtype)
        whole = fused if k == 0 else ops.floormod(fused, ops.mul(lower, extent))
        is_unit = isinstance(extent, IntImm) and extent.value == 1
        value = ops.const(0, dtype) if is_unit else ops.floordiv(whole, lower)
        values[loop.loop_var] = ops.cast_to(value, loop.loop_var.dtype)
        lower = ops.mul(lower, extent)
    renewed: dict[Block, Block] = {}
    body = substituted(loops[-1].body, values, renewed)
    zero = ops.const(0, dtype)
    new = For(fused, zero, Analyzer().simplify(lower), ForKind.SERIAL, body)
    around = [*state.loops(loops[0]), new]
    body = with_simple_bindings(body, around, renewed, keep_unit_iters=preserve_unit_iters)
    nest = nested([new], body)
    state.replace({loops[0]: nest}, renewed)
    return loops_between(nest, body)[0]


def _check_inits_of_nothing(loops: Sequence[For]) -> None:
    """Errors: ScheduleError if an init that runs without iterations would not after `fuse`."""
    empty = {
        at.loop_var for at in loops if not Analyzer().can_prove(ops.compare(tir.GT, at.extent, 0))
    }
    others = {at.loop_var for at in loops} - empty
    for realize in outermost_blocks(loops[-1]):
        block = realize.block
        values = {
            kind: [
                value
                for it, value in zip(block.iter_vars, realize.iter_values, strict=True)
                if it.iter_type == kind
            ]
            for kind in (IterVarKind.DataPar, IterVarKind.CommReduce)
        }
        if (
            block.init is not None
            and any(mentions(value, empty) for value in values[IterVarKind.CommReduce])
            and any(mentions(value, others) for value in values[IterVarKind.DataPar])
        ):
            raise refused(
                f"block {block.name_hint} may have nothing to reduce, and runs its init in each "
                "iteration of other loops then",
                block,
            )


def reorder(state: State, loops: Sequence[For]) -> None:
    """Permute loops of one chain; they take each other's places in the order of `loops`."""
    if len({loop.loop_var for loop in loops}) != len(loops):
        raise refused("a loop is listed twice")
    if len(loops) < 2:
        return
    chain = _chain(state, loops)
    places = iter(loops)
    order = [next(places) if loop in loops else loop for loop in chain]
    if order == chain:
        return
    _check_independent(order)
    check_reorder(state, chain, order)
    state.replace({chain[0]: nested(order, chain[-1].body)})


def _chain(state: State, loops: Sequence[For]) -> list[For]:
    """Return the loops from the outermost of `loops` to the innermost."""
    innermost = max(loops, key=lambda loop: len(list(state.ancestors(loop))))
    waiting = {loop.loop_var for loop in loops} - {innermost.loop_var}
    chain = [innermost]
    for above in state.ancestors(innermost):
        if not waiting:
            break
        if not isinstance(above, For):
            what = "is a block" if isinstance(above, BlockRealize) else "are other statements"
            raise refused(f"the loops are not one chain: there {what} between them", innermost)
        chain.append(above)
        waiting -= {above.loop_var}
    if waiting:
        raise refused("the loops are not inside each other", innermost)
    return chain[::-1]


def add_unit_loop(state: State, node: For | Block) -> For:
    """Put a loop of extent 1 around a loop, or around a block."""
    target = state.realize(node) if isinstance(node, Block) else node
    if state.parent(target) is None:
        raise refused("there is no loop around the root block", node)
    dtype = node.loop_var.dtype if isinstance(node, For) else ops.const(0).dtype
    zero, one = ops.const(0, dtype), ops.const(1, dtype)
    unit = For(Var("u", dtype), zero, one, ForKind.SERIAL, target)
    state.replace({target: unit})
    return unit


def check_plain(loop: For) -> None:
    """Errors: ScheduleError if `loop` is bound, annotated or parallel, or does not begin at 0."""
    name = loop.loop_var.name
    if loop.annotations or loop.thread_binding is not None:
        raise refused(f"loop {name} has annotations or is bound to a thread", loop)
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {name} is {loop.kind.name.lower()}, expected a serial one", loop)
    if not Analyzer().can_prove_equal(loop.min, 0):
        raise refused(f"loop {name} begins at {loop.min}, expected 0", loop)


def _check_independent(loops: Sequence[For], *, outer: bool = False) -> None:
    """Errors: ScheduleError if bounds depend on a loop not outside of theirs, or on an `outer`."""
    for k, loop in enumerate(loops):
        inner = {other.loop_var for other in loops[0 if outer else k :]}
        for bound in (loop.min, loop.extent):
            if mentions(bound, inner):
                raise refused(
                    f"the bounds of loop {loop.loop_var.name} depend on one of the loops", loop
                )
