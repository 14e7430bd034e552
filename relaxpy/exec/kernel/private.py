"""Buffers that live within one round of a loop, given a place for each round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from relaxpy.exec.kernel.nest import (
    Axis,
    Bind,
    Branch,
    Check,
    Invoke,
    Item,
    Jump,
    Leave,
    Local,
    Loop,
    Make,
    Memory,
    Nest,
    Repeat,
    Store,
    loads,
)
from relaxpy.ir.node import Node
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.affine import as_poly, mentions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, Range, decl_buffer
from relaxpy.ir.tir.expr import Call, PrimExpr
from relaxpy.ir.traverse import rewrite

Places = Mapping[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]]


def expand_locals(nest: Nest) -> Nest:
    """`nest` with each buffer that a loop makes anew made once, with the loops as more dimensions.

    So rounds of these loops no longer meet in it. Loops whose bounds are not known beforehand are
    left as they are.
    """
    places: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
    local: list[Local] = []
    laid_over = {*nest.views, *nest.views.values()}
    for entry in nest.local:
        if not entry.axes or entry.buffer in laid_over or not _fixed(entry):
            local.append(replace(entry, axes=()))
            continue
        extents = [(as_poly(a.stop) - as_poly(a.start)).expr() for a in entry.axes]
        buffer = entry.buffer
        wide = decl_buffer([*extents, *buffer.shape], buffer.dtype, buffer.name)
        rounds = tuple(ops.sub(a.var, a.start) for a in entry.axes)
        places[buffer] = wide, rounds
        local.append(Local(wide, ()))
    if not places:
        return replace(nest, local=tuple(local))
    items = tuple(_item(item, places) for item in nest.items)
    return replace(nest, items=items, local=tuple(local))


def _fixed(entry: Local) -> bool:
    """Whether the loops and the buffer's own size depend neither on each other nor on memory."""
    variables = {a.var for a in entry.axes}
    bounds = [b for a in entry.axes for b in (a.start, a.stop)]
    return not any(
        mentions(b, variables) or next(loads(b), None) is not None
        for b in (*bounds, *entry.buffer.shape)
    )


def _item(item: Item, places: Places) -> Item:
    match item:
        case Loop(axis=axis, body=body):
            bounds = Axis(axis.var, _expr(axis.start, places), _expr(axis.stop, places))
            inner = tuple(_item(i, places) for i in body)
            same = bounds.start is axis.start and bounds.stop is axis.stop
            return replace(item, axis=axis if same else bounds, body=inner)
        case Branch(condition=condition, body=body, orelse=orelse):
            return replace(
                item,
                condition=_expr(condition, places),
                body=tuple(_item(i, places) for i in body),
                orelse=tuple(_item(i, places) for i in orelse),
            )
        case Repeat(condition=condition, body=body):
            inner = tuple(_item(i, places) for i in body)
            return replace(item, condition=_expr(condition, places), body=inner)
        case Store(buffer=buffer, indices=indices, value=value):
            wide, rounds = places.get(buffer, (buffer, ()))
            at = (*rounds, *(_expr(i, places) for i in indices))
            return replace(item, buffer=wide, indices=at, value=_expr(value, places))
        case Bind(value=value) | Leave(value=value):
            return replace(item, value=_expr(value, places))
        case Check(condition=condition):
            return replace(item, condition=_expr(condition, places))
        case Invoke(call=call):
            return replace(item, call=cast("Call", _expr(call, places)))
        case Jump() | Make():
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
