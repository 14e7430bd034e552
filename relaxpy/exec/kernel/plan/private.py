"""Buffers that live within one round of a loop, given a place for each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, cast

from relaxpy.exec.kernel.nest.nodes import (
    Axis,
    Branch,
    Item,
    Local,
    Loop,
    Memory,
    Nest,
    Repeat,
    Store,
    loads,
    mapped,
)
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, Range, decl_buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute

Places = Mapping[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]]


_MOST_TIMES: Final = 16
_MOST: Final = 1 << 22
"""Elements of an expanded buffer: so many times those of the largest argument, or so many."""
_UNKNOWN: Final = 1 << 20
"""What a size is taken for that is not known: much more than any number in a shape."""


def expand_locals(nest: Nest, arguments: Iterable[Buffer]) -> Nest:
    """`nest` with each buffer that a loop makes anew made once, with the loops as more dimensions.

    So rounds of these loops no longer meet in it. Loops whose bounds are not known beforehand are
    left as they are, and outer ones that would make it much larger than all `arguments`.
    """
    most = _MOST
    if any(entry.axes for entry in nest.local):
        most = max(most, *(_MOST_TIMES * _count(b.shape) for b in arguments), 0)
    places: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
    local: list[Local] = []
    laid_over = {*nest.views, *nest.views.values()}
    uses = Counter(entry.buffer for entry in nest.local)
    for buffer, entry in {entry.buffer: entry for entry in nest.local}.items():
        if not entry.axes or buffer in laid_over or uses[buffer] > 1 or not _fixed(entry):
            local.append(replace(entry, axes=()))
            continue
        shape = list(buffer.shape)
        kept: list[Axis] = []
        for axis in reversed(entry.axes):
            extent = (as_poly(axis.stop) - as_poly(axis.start)).expr()
            if _count([extent, *shape]) > most:
                break
            shape.insert(0, extent)
            kept.insert(0, axis)
        if not kept:
            local.append(replace(entry, axes=()))
            continue
        wide = decl_buffer(shape, buffer.dtype, buffer.name)
        rounds = tuple(ops.sub(a.var, a.start) for a in kept)
        places[buffer] = wide, rounds
        local.append(Local(wide, ()))
    if not places:
        return replace(nest, local=tuple(local))
    items = tuple(_item(item, places) for item in nest.items)
    return replace(nest, items=items, local=tuple(local))


def _count(shape: Iterable[PrimExpr]) -> int:
    """The elements of a shape, about."""
    total = 1
    for size in shape:
        variables = {v for v in walk(size) if isinstance(v, Var)}
        known = substitute(size, {v: ops.const(_UNKNOWN, v.dtype) for v in variables})
        found = Analyzer().simplify(known)
        total *= max(found.value, 1) if isinstance(found, IntImm) else _UNKNOWN
    return total


def _fixed(entry: Local) -> bool:
    """Whether the loops and the buffer's own size depend neither on each other nor on memory."""
    variables = {a.var for a in entry.axes}
    bounds = [b for a in entry.axes for b in (a.start, a.stop)]
    return not any(
        mentions(b, variables) or next(loads(b), None) is not None
        for b in (*bounds, *entry.buffer.shape)
    )


def _item(item: Item, places: Places) -> Item:
    found = mapped(item, lambda expr: _expr(expr, places))
    return _stores(found, places)


def _stores(item: Item, places: Places) -> Item:
    """`item` with its stores to the widened buffers."""
    match item:
        case Store(buffer=buffer, indices=indices) if buffer in places:
            wide, rounds = places[buffer]
            return replace(item, buffer=wide, indices=(*rounds, *indices))
        case Loop(body=body) | Repeat(body=body):
            return replace(item, body=tuple(_stores(i, places) for i in body))
        case Branch(body=body, orelse=orelse):
            yes, no = (tuple(_stores(i, places) for i in part) for part in (body, orelse))
            return replace(item, body=yes, orelse=no)
        case _:
            return item


def _expr(expr: PrimExpr, places: Places) -> PrimExpr:
    def rule(node: Node) -> Node | None:
        if isinstance(node, BufferLoad) and node.buffer in places:
            wide, rounds = places[node.buffer]
            return BufferLoad(wide, (*rounds, *node.indices))
        if isinstance(node, Memory) and node.buffer in places:
            wide, rounds = places[node.buffer]
            region = node.region or tuple(Range(0, s) for s in node.buffer.shape)
            points = (Range.point(r) for r in rounds)
            return Memory(wide, (*points, *region), node.drop + len(rounds))
        return None

    return cast("PrimExpr", rewrite(expr, rule))
