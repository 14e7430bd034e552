"""Loops and blocks as the primitives build them, and tests that indices are in a box."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace


def nested(loops: Sequence[For], body: Stmt) -> Stmt:
    """Return loops like `loops` around `body`, each in the one before."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def serial_nest(loops: Iterable[tuple[Var, Range]], body: Stmt) -> Stmt:
    """Return serial loops, by their variables and ranges, around `body`."""
    for var, domain in reversed(list(loops)):
        body = For(var, domain.min, domain.extent, ForKind.SERIAL, body)
    return body


def loops_like(
    loops: Sequence[For], names: dict[Var, Var], body: Stmt, *, same_kinds: bool = False
) -> Stmt:
    """Return loops like `loops` with other variables, serial unless they are bound to threads.

    With `same_kinds`, those that are parallel, vectors or unrolled are so, too.
    """
    for loop in reversed(loops):
        index = loop.thread_binding if loop.kind == ForKind.THREAD_BINDING else None
        body = For(
            names[loop.loop_var],
            substitute(loop.min, names),
            substitute(loop.extent, names),
            ForKind.SERIAL if index is None and not same_kinds else loop.kind,
            body,
            None if index is None else replace(index, var=index.var.renamed(index.var.name)),
        )
    return body


def spatial_block(
    name: str, sizes: Sequence[PrimExpr], store: Callable[[Sequence[Var]], BufferStore]
) -> Block:
    """Return a block of the store that a function of its variables, v0 and so on, returns."""
    variables = [Var(f"v{k}", size.dtype) for k, size in enumerate(sizes)]
    iters = (
        IterVar(Range(size), var, IterVarKind.DataPar)
        for var, size in zip(variables, sizes, strict=True)
    )
    return with_regions(Block(tuple(iters), (), (), name, store(variables)))


def copied_block(
    name: str,
    iters: Sequence[tuple[IterVar, PrimExpr]],
    body: Stmt,
    predicate: PrimExpr,
    loops: Sequence[For],
    suffix: str,
) -> tuple[Block, Stmt]:
    """Return a block that runs `body` for the same values of `iters`, and loops of its own for it.

    `iters` are block variables with their values; the names of the loops end in `suffix`.
    """
    names = {at.loop_var: at.loop_var.renamed(f"{at.loop_var.name}{suffix}") for at in loops}
    copies = {it.var: it.var.renamed(it.var.name) for it, _ in iters}
    own = tuple(IterVar(it.dom, copies[it.var], it.iter_type) for it, _ in iters)
    block = with_regions(Block(own, (), (), name, substitute(body, copies)))
    values = tuple(substitute(value, names) for _, value in iters)
    realize = BlockRealize(values, substitute(predicate, names), block)
    return block, loops_like(loops, names, realize, same_kinds=True)


def open_tests(analyzer: Analyzer, index: PrimExpr, domain: Range) -> list[PrimExpr]:
    """Return the unproved bounds conditions of `index` in `domain`."""
    stop = ops.add(domain.min, domain.extent)
    tests = ops.compare(tir.GE, index, domain.min), ops.compare(tir.LT, index, stop)
    return [test for test in tests if not analyzer.can_prove(test)]


def is_inside(analyzer: Analyzer, indices: Sequence[PrimExpr], box: Sequence[Range]) -> bool:
    """Return whether indices are known to be in a box."""
    pairs = zip(indices, box, strict=True)
    return not any(open_tests(analyzer, index, domain) for index, domain in pairs)


def is_shared(buffer: Buffer, loop: For) -> bool:
    """Return whether the threads of a loop use the same buffer, though each runs one iteration."""
    if loop.kind != ForKind.THREAD_BINDING or loop.thread_binding is None:
        return False
    scope, tag = buffer.scope().partition(".")[0], loop.thread_binding.thread_tag
    return tag == "threadIdx.x" if scope == "warp" else scope == "shared" and "block" not in tag
