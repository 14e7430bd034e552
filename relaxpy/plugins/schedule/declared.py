"""Primitives that change declarations: the variables and regions of blocks, and buffers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node, as_attrs
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import stage_in_scope
from relaxpy.ir.tir.rewrite.state import State, refused
from relaxpy.ir.tir.stmt import Block, BufferStore, MatchBufferRegion
from relaxpy.ir.tir.substitution import substitute
from relaxpy.plugins.schedule.cache import buffer_of, with_buffer
from relaxpy.plugins.schedule.layout import BufferName, accessed_buffer, params_of
from relaxpy.support.dataclass import replace

_EXPLICIT = {"read": "explicit_read_region", "write": "explicit_write_region"}


def reorder_block_iter_var(state: State, block: Block, new_order: Sequence[int]) -> None:
    """Put the variables of a block into another order, with their values."""
    order = [ops.as_int(index) for index in new_order]
    if sorted(order) != list(range(len(block.iter_vars))):
        raise refused(
            f"the new order has each of the numbers 0 to {len(block.iter_vars) - 1} once, found "
            f"{order}",
            block,
        )
    realize = state.realize(block)
    new = replace(block, iter_vars=tuple(block.iter_vars[index] for index in order))
    values = tuple(realize.iter_values[index] for index in order)
    state.replace({realize: replace(realize, iter_values=values, block=new)}, {block: new})


def region_of(function: Callable[..., Any] | IndexMap, block: Block) -> list[Range]:
    """Return the region that a function returns for the variables of `block`.

    A map has the first and the last plus one of each range as its results.
    """
    variables = [it.var for it in block.iter_vars]
    if isinstance(function, IndexMap):
        ends = function.map_indices(variables)
        return [_range((ends[k], ends[k + 1])) for k in range(0, len(ends), 2)]
    count = len(inspect.signature(function).parameters)
    if count != len(variables):
        raise MisuseError(
            f"the function takes {count} variables, block {block.name_hint} has {len(variables)}"
        )
    return [_range(item) for item in function(*variables)]


def as_index_map(block: Block, ranges: Sequence[Range]) -> IndexMap:
    """Return the map from the variables of a block to the ends of ranges."""
    copies = [it.var.renamed(it.var.name) for it in block.iter_vars]
    at = {it.var: copy for it, copy in zip(block.iter_vars, copies, strict=True)}
    ends = [end for rng in ranges for end in (rng.min, ops.add(rng.min, rng.extent))]
    return IndexMap(tuple(copies), tuple(substitute(end, at) for end in ends))


def _range(item: Any) -> Range:
    match item:
        case (start, stop):
            first = ops.convert(start)
            extent = Analyzer().simplify(ops.sub(ops.convert(stop), first))
            return Range.from_min_extent(first, extent)
        case tuple() | list():
            raise unexpected(item, "a range of a region is a value, or a begin and an end")
        case _:
            return Range.from_min_extent(ops.convert(item), ops.const(1, ops.convert(item).dtype))


def annotate_buffer_access(
    state: State, block: Block, which: int, kind: str, ranges: Sequence[Range]
) -> None:
    """Declare that a block accesses other elements than its body shows."""
    if kind not in _EXPLICIT:
        raise unexpected(kind, "the kind of an access is 'read' or 'write'")
    regions = list(block.reads if kind == "read" else block.writes)
    index = ops.as_int(which)
    if not 0 <= index < len(regions):
        raise refused(f"block {block.name_hint} {kind}s {len(regions)} buffers, not {index}", block)
    regions[index] = BufferRegion(regions[index].buffer, tuple(ranges))
    marked = tuple(block.annotations.get(_EXPLICIT[kind], ()))
    if index not in map(ops.as_int, marked):
        marked = (*marked, ops.const(index))
    annotations = as_attrs(dict(block.annotations) | {_EXPLICIT[kind]: marked})
    changed = {"reads" if kind == "read" else "writes": tuple(regions)}
    state.renew(block, replace(block, annotations=annotations, **changed))  # type: ignore[arg-type]


def set_axis_separator(
    state: State, block: Block, which: BufferName, separators: Sequence[int]
) -> None:
    """Divide the axes of a buffer into physical ones."""
    _, stage = stage_in_scope(state, block)
    old, _ = accessed_buffer(stage, which)
    new = Buffer(
        old.data,
        old.dtype,
        old.shape,
        old.strides,
        old.elem_offset,
        old.name,
        old.data_alignment,
        old.offset_factor,
        old.buffer_type,
        tuple(ops.as_int(index) for index in separators),
    )
    renewed: dict[Block, Block] = {}
    root = with_buffer(state.root, old, new, renewed)
    params = tuple(new if b is old else b for b in state.func.buffer_map_items)
    realize = replace(state.realize(state.root), block=root)
    state.become(state.func.with_fields(body=realize, buffer_map_items=params), renewed)


def unsafe_set_dtype(state: State, block: Block, which: int, dtype: str) -> None:
    """Keep a buffer that a block writes in another datatype, to which values are cast."""
    _, stage = stage_in_scope(state, block)
    index = ops.as_int(which)
    if not 0 <= index < len(block.writes):
        raise refused(f"block {block.name_hint} writes {len(block.writes)} buffers", block)
    old = buffer_of(stage, index, block.writes, "writes")
    if old in params_of(state):
        raise refused(f"{old.name} is a parameter, which keeps its datatype", block)
    kind = DataType(dtype)
    views = {
        match.buffer: replace(match.buffer, dtype=kind, data=_pointer(match.buffer, kind))
        for each in state.blocks()
        for match in each.match_buffers
        if match.source.buffer is old
    }
    new = decl_buffer(old.shape, kind, old.name, scope=old.scope())
    retyped = _Retyped({old: new, **views})
    root = retyped.visit(state.root)
    assert isinstance(root, Block)
    realize = replace(state.realize(state.root), block=root)
    state.become(state.func.with_fields(body=realize), retyped.renewed)


def _pointer(buffer: Buffer, dtype: DataType) -> Var:
    return decl_buffer(buffer.shape, dtype, buffer.name, scope=buffer.scope()).data


class _Retyped:
    """Replaces buffers by those of another datatype, and casts loads and stores."""

    def __init__(self, buffers: Mapping[Buffer, Buffer]) -> None:
        self.buffers = buffers
        self.renewed: dict[Block, Block] = {}

    def visit(self, item: Node) -> Node:
        """Return `item` with the buffers below it replaced."""
        if isinstance(item, Buffer):
            return self.buffers.get(item, item)
        if item._variable:
            return item
        match item:
            case BufferStore(buffer=buffer) if buffer in self.buffers:
                new = self.buffers[buffer]
                indices = tuple(map(self._expr, item.indices))
                return BufferStore(new, ops.cast_to(self._expr(item.value), new.dtype), indices)
            case BufferLoad(buffer=buffer) if buffer in self.buffers:
                indices = tuple(map(self._expr, item.indices))
                return ops.cast_to(BufferLoad(self.buffers[buffer], indices), buffer.dtype)
            case MatchBufferRegion(buffer=buffer, source=source) if buffer in self.buffers:
                found = self.visit(source)
                assert isinstance(found, BufferRegion)
                return MatchBufferRegion(self.buffers[buffer], found)
            case _:
                new_item = map_children(self.visit, item)
        if isinstance(item, Block) and isinstance(new_item, Block) and new_item is not item:
            self.renewed[item] = new_item
        return new_item

    def _expr(self, expr: PrimExpr) -> PrimExpr:
        new = self.visit(expr)
        assert isinstance(new, PrimExpr)
        return new
