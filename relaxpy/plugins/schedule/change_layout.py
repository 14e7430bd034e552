"""transform_layout and transform_block_layout, and other changes of declared buffers and blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, ScheduleError, unexpected
from relaxpy.ir.arith.prove import in_order
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node, as_attrs
from relaxpy.ir.core.traverse import map_children, occurrences
from relaxpy.ir.tir import intrin, ops, stmt
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.expr import IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.inline import check_loads_only
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_commutes,
    check_only_content,
    check_own_variables,
    check_pure_stage,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    domains_of,
    iter_domains,
    refreshed,
    refused,
    serial_nest,
    spatial_block,
    substituted,
)
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.cache import Site, buffer_of, with_buffer
from relaxpy.support.dataclass import dataclass, replace

BufferName: TypeAlias = "tuple[str, int] | str | Buffer"
Map: TypeAlias = "IndexMap | Callable[..., Any]"
MapOf: TypeAlias = Callable[[Map, int, DataType], IndexMap]
"""Returns a function of `n` indices of a datatype as an index map."""


def accessed_buffer(stage: Stage, which: BufferName) -> tuple[Buffer, bool]:
    """The buffer that a block accesses, and whether it is meant as one that it writes."""
    match which:
        case ("read" | "write" as kind, index):
            regions = stage.block.reads if kind == "read" else stage.block.writes
            return buffer_of(stage, index, regions, f"{kind}s"), kind == "write"
        case str() | Buffer():
            regions = (*stage.block.writes, *stage.block.reads)
            buffer = buffer_of(stage, which, regions, "accesses")
            return buffer, any(region.buffer is buffer for region in stage.block.writes)
        case _:
            raise unexpected(
                which, "a buffer is ('read', number), ('write', number), a name or the buffer"
            )


def transform_layout(
    state: State,
    block: stmt.Block,
    which: BufferName,
    index_map: Map,
    pad_value: Any,
    map_of: MapOf,
    *,
    assume_injective: bool,
) -> None:
    """Store the elements of a buffer at other indices, in all of the kernel."""
    _, stage = stage_in_scope(state, block)
    old, _ = accessed_buffer(stage, which)
    check_loads_only(state, old)
    if old.strides or not isinstance(old.elem_offset, IntImm) or old.elem_offset.value:
        raise refused(f"{old.name} is not compact: it has strides or an offset", block)
    index_map = map_of(index_map, old.ndim, _index_dtype(old.shape))
    inverse, padding = injective(index_map, old.shape, assume=assume_injective)
    new = decl_buffer(
        [
            ops.cast_to(Analyzer().simplify(size), _index_dtype(old.shape))
            for size in index_map.map_shape(old.shape)
        ],
        old.dtype,
        old.name,
        scope=old.scope(),
    )
    is_input = old in params_of(state) and not any(
        region.buffer is old for b in state.blocks() for region in b.writes
    )
    fill = producer = None
    if pad_value is not None:
        value = _padding_value(pad_value, new, map_of)
        if inverse is None or padding is None:
            raise refused("a map that is assumed to be injective has no known padding", block)
        if not is_input and not Analyzer().can_prove(ops.logical_not(padding)):
            padded = Padded(old, new, inverse, padding, value)
            producer = padded.producer(state)
            fill = padded.fill() if producer is None else None
    rewriter = Relayout(old, new, index_map, producer)
    body = rewriter.visit(state.func.body)
    assert isinstance(body, stmt.Stmt)
    params = tuple(new if b is old else b for b in state.func.buffer_map_items)
    state.become(state.func.with_fields(body=body, buffer_map_items=params), rewriter.renewed)
    if fill is not None:
        owner = next((b for b in state.blocks() if new in b.alloc_buffers), state.root)
        members = Site(owner, 0).members()
        last = max((k for k, member in enumerate(members) if _stores(member, new)), default=-1)
        Site(owner, last + 1).insert(state, fill)


def params_of(state: State) -> set[Buffer]:
    """The buffers that are parameters."""
    return set(state.func.buffer_map.values())


def _index_dtype(values: Sequence[PrimExpr]) -> DataType:
    return values[0].dtype if values else ops.const(0).dtype


def injective(
    index_map: IndexMap, shape: Sequence[PrimExpr] | Sequence[Range], *, assume: bool
) -> tuple[IndexMap | None, PrimExpr | None]:
    """The inverse of a map, and the predicate of padding.

    Errors:
        ScheduleError: the map is not injective, and not assumed to be so.
    """
    if len(index_map.initial_indices) != len(shape):
        raise MisuseError(
            f"the map takes {len(index_map.initial_indices)} indices, the buffer has {len(shape)}",
            about=index_map,
        )
    try:
        return index_map.non_surjective_inverse(shape)
    except MisuseError as error:
        if assume:
            return None, None
        raise refused(f"the map is not known to be injective: {error}") from None


class Relayout:
    """Replaces accesses to one buffer by those of another one at mapped indices."""

    def __init__(
        self, old: Buffer, new: Buffer, index_map: IndexMap, producer: Producer | None = None
    ) -> None:
        self.old, self.new, self.index_map = old, new, index_map
        self.producer = producer
        self.analyzer = Analyzer()
        self.renewed: dict[stmt.Block, stmt.Block] = {}

    def visit(self, item: Node) -> Node:
        """`item` with the accesses below it replaced."""
        if item._variable:
            return item
        if self.producer is not None and item is self.producer.stage.loops[0]:
            self.renewed[self.producer.stage.block] = self.producer.block
            return self.producer.nest
        bound = domains_of([item]) if isinstance(item, stmt.For) else {}
        bound = iter_domains(item) if isinstance(item, stmt.Block) else bound
        for var, domain in bound.items():
            self.analyzer.bind(var, domain, allow_override=True)
        new = map_children(self.visit, item)
        if isinstance(new, stmt.BufferStore) and new.buffer is self.old:
            return replace(new, buffer=self.new, indices=self._mapped(new.indices))
        if isinstance(new, BufferLoad) and new.buffer is self.old:
            return BufferLoad(self.new, self._mapped(new.indices), new.predicate)
        if isinstance(item, stmt.Block) and isinstance(new, stmt.Block):
            return self._block(item, new)
        return new

    def _mapped(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        if any(index.dtype.lanes > 1 for index in indices):
            raise refused(f"{self.old.name} is accessed as vectors")
        found = self.index_map.map_indices(indices)
        simple = (
            index
            if any(index.same_as(old) for old in indices)
            else in_order(index, self.analyzer.simplify)
            for index in found
        )
        return tuple(ops.cast_to(i, n.dtype) for i, n in zip(simple, self.new.shape, strict=True))

    def _block(self, item: stmt.Block, new: stmt.Block) -> stmt.Block:
        declared = any(region.buffer is self.old for region in (*item.reads, *item.writes))
        if self.old in new.alloc_buffers:
            buffers = tuple(self.new if b is self.old else b for b in new.alloc_buffers)
            new = replace(new, alloc_buffers=buffers)
        if declared or (new is not item and new.body is not item.body):
            new = with_regions(new) if declared else refreshed(new)
        if new is not item:
            self.renewed[item] = new
        return new


def _padding_value(
    value: Any, buffer: Buffer, map_of: MapOf
) -> Callable[[Sequence[Var]], PrimExpr]:
    """A function from indices of padding to its value."""
    match value:
        case bool() | int() | float():
            constant = ops.const(value, buffer.dtype)
            if isinstance(constant, IntImm) and constant.value != value:
                raise MisuseError(
                    f"pad_value is {value}, and {buffer.name} is {buffer.dtype}", about=value
                )
            return lambda _: constant
        case PrimExpr():
            expr = value
        case _:
            made = map_of(value, buffer.ndim, _index_dtype(buffer.shape))
            if len(made.final_indices) != 1:
                raise MisuseError(f"the map of pad_value has one result, found {made}", about=value)
            (expr,) = made.final_indices
    if expr.dtype != buffer.dtype:
        raise MisuseError(
            f"pad_value is {expr.dtype}, and {buffer.name} is {buffer.dtype}", about=value
        )
    if next(occurrences(expr, BufferLoad), None) is not None:
        raise refused("pad_value reads a buffer")
    if isinstance(value, PrimExpr):
        return lambda _: expr
    return lambda axes: substitute(expr, dict(zip(made.initial_indices, axes, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Producer:
    """The loops and block that compute padding, too, and the stage that they replace."""

    stage: Stage
    block: stmt.Block
    nest: stmt.Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """The elements of `new` that are padding, and their values.

    The `inverse` of the map returns the indices in `old`; `padding` is of its indices.
    """

    old: Buffer
    new: Buffer
    inverse: IndexMap
    padding: PrimExpr
    value: Callable[[Sequence[Var]], PrimExpr]

    def is_padding(self, axes: Sequence[Var]) -> PrimExpr:
        """The condition that an element of `new` is padding."""
        pairs = zip(self.inverse.initial_indices, axes, strict=True)
        at = {index: ops.cast_to(axis, index.dtype) for index, axis in pairs}
        return self.analyzer(axes).simplify(substitute(self.padding, at))

    def analyzer(self, axes: Sequence[Var]) -> Analyzer:
        """An analyzer that knows that `axes` are indices of `new`."""
        pairs = zip(axes, self.new.shape, strict=True)
        return analyzer_of({axis: Range(size) for axis, size in pairs})

    def loops(self) -> list[tuple[Var, Range]]:
        """A loop over each axis of `new`."""
        return [(Var(f"ax{k}", n.dtype), Range(n)) for k, n in enumerate(self.new.shape)]

    def fill(self) -> stmt.Stmt:
        """Loops that store the value in all elements of padding."""
        loops = self.loops()
        axes = tuple(var for var, _ in loops)
        block = spatial_block(
            f"{self.new.name}_padding",
            self.new.shape,
            lambda variables: stmt.BufferStore(self.new, self.value(variables), tuple(variables)),
        )
        return serial_nest(loops, stmt.BlockRealize(axes, self.is_padding(axes), block))

    def producer(self, state: State) -> Producer | None:
        """The loops that compute all of `new`, for those of the only block that writes `old`.

        None unless that block is alone in its loops and stores each element at its variables.
        """
        writers = [b for b in state.blocks() if any(r.buffer is self.old for r in b.writes)]
        if len(writers) != 1 or writers[0] is state.root:
            return None
        (block,) = writers
        _, stage = stage_in_scope(state, block)
        try:
            check_trivial_loops(stage)
        except ScheduleError:
            return None
        if not self._is_whole(block):
            return None
        count = self.old.ndim
        axes = [Var(f"v{k}", size.dtype) for k, size in enumerate(self.new.shape)]
        iters = [
            IterVar(Range(size), var, IterVarKind.DataPar)
            for var, size in zip(axes, self.new.shape, strict=True)
        ]
        analyzer, is_padding = self.analyzer(axes), self.is_padding(axes)
        values = {
            it.var: ops.cast_to(analyzer.simplify(index), it.var.dtype)
            for it, index in zip(block.iter_vars, self.inverse.map_indices(axes), strict=False)
        }

        def moved(node: Node) -> Node:
            if isinstance(node, BufferLoad) and node.buffer is self.old:
                return BufferLoad(self.new, tuple(axes))
            return map_children(moved, node)

        def padded(store: stmt.Stmt) -> stmt.BufferStore:
            assert isinstance(store, stmt.BufferStore)
            inside = moved(store.value)
            assert isinstance(inside, PrimExpr)
            inside = substitute(inside, values)
            value = intrin.if_then_else(is_padding, self.value(axes), inside)
            return stmt.BufferStore(self.new, value, tuple(axes))

        new = with_regions(
            replace(
                block,
                iter_vars=(*iters, *block.iter_vars[count:]),
                body=padded(block.body),
                init=None if block.init is None else padded(block.init),
            )
        )
        rest = [(loop.loop_var, Range(loop.extent)) for loop in stage.loops[count:]]
        loops = [*self.loops(), *rest]
        realize = stmt.BlockRealize(tuple(var for var, _ in loops), stage.realize.predicate, new)
        return Producer(stage, new, serial_nest(loops, realize))

    def _is_whole(self, block: stmt.Block) -> bool:
        """True if a block stores each element of `old` at its first variables, and no more."""
        spatial = block.iter_vars[: self.old.ndim]
        variables = [it.var for it in spatial]
        stores = [block.body] if block.init is None else [block.init, block.body]
        analyzer = Analyzer()
        return (
            len(spatial) == self.old.ndim
            and not block.alloc_buffers
            and not block.match_buffers
            and all(it.iter_type == IterVarKind.DataPar for it in spatial)
            and all(
                it.iter_type == IterVarKind.CommReduce for it in block.iter_vars[len(spatial) :]
            )
            and all(
                it.dom is not None and analyzer.can_prove_equal(it.dom.extent, size)
                for it, size in zip(spatial, self.old.shape, strict=True)
            )
            and all(
                isinstance(store, stmt.BufferStore)
                and store.buffer is self.old
                and store.predicate is None
                and list(store.indices) == variables
                and all(
                    list(load.indices) == variables
                    for load in occurrences(store, BufferLoad)
                    if load.buffer is self.old
                )
                for store in stores
            )
        )


def _stores(item: stmt.Stmt, buffer: Buffer) -> bool:
    return any(store.buffer is buffer for store in occurrences(item, stmt.BufferStore))


# --- iterations


def check_trivial_loops(stage: Stage) -> None:
    """Errors: ScheduleError if the loops of a block are not one for each of its variables.

    They have to have its domains, nothing else in them, and no condition.
    """
    name, realize = stage.name, stage.realize
    if not stage.loops:
        raise refused(f"there is no loop around block {name}", stage.block)
    check_only_content(stage, stage.loops, (stmt.ForKind.SERIAL,))
    analyzer = Analyzer()
    is_plain = len(stage.loops) == len(realize.iter_values) and all(
        value is loop.loop_var
        and it.dom is not None
        and analyzer.can_prove_equal(loop.min, 0)
        and analyzer.can_prove_equal(it.dom.min, 0)
        and analyzer.can_prove_equal(loop.extent, it.dom.extent)
        for value, loop, it in zip(
            realize.iter_values, stage.loops, stage.block.iter_vars, strict=False
        )
    )
    if not is_plain:
        raise refused(
            f"the variables of block {name} are not one for each of its loops, in their order",
            stage.block,
        )
    if not (isinstance(realize.predicate, IntImm) and realize.predicate.value):
        raise refused(f"block {name} has the condition {realize.predicate}", stage.block)
    check_own_variables(stage)


def transform_block_layout(state: State, block: stmt.Block, index_map: Map, map_of: MapOf) -> None:
    """Let a block run through other loops, whose variables are those of a map."""
    stages, stage = stage_in_scope(state, block)
    check_trivial_loops(stage)
    check_pure_stage(stage, stages)
    if stage.iters(IterVarKind.CommReduce):
        check_commutes(stage)
    extents = [loop.extent for loop in stage.loops]
    dtype = block.iter_vars[0].var.dtype
    index_map = map_of(index_map, len(extents), dtype)
    if len(index_map.initial_indices) != len(extents):
        raise MisuseError(
            f"the map takes {len(index_map.initial_indices)} indices, block {stage.name} has "
            f"{len(extents)} variables",
            about=index_map,
        )
    try:
        inverse = index_map.inverse(extents)
        sizes = index_map.map_shape(extents)
    except MisuseError as error:
        raise refused(f"the map is not known to be bijective: {error}", block) from None
    kinds = [_kind(index_map, index, block) for index in index_map.final_indices]
    domains = [Range(ops.cast_to(size, dtype)) for size in sizes]
    loops = [(Var(f"ax{k}", dtype), domain) for k, domain in enumerate(domains)]
    iters = [
        IterVar(domain, Var(f"v{k}", dtype), kind)
        for k, (domain, kind) in enumerate(zip(domains, kinds, strict=True))
    ]
    analyzer = analyzer_of({it.var: dom for it, dom in zip(iters, domains, strict=True)})
    found = inverse.map_indices([it.var for it in iters])
    values = {
        it.var: ops.cast_to(analyzer.simplify(value), it.var.dtype)
        for it, value in zip(block.iter_vars, found, strict=True)
    }
    renewed: dict[stmt.Block, stmt.Block] = {}
    inner = substituted(replace(block, iter_vars=tuple(iters)), values, renewed)
    assert isinstance(inner, stmt.Block)
    new = with_regions(inner)
    realize = stmt.BlockRealize(tuple(var for var, _ in loops), stage.realize.predicate, new)
    nest = serial_nest(loops, realize)
    state.replace({stage.loops[0]: nest}, renewed | {block: new})


def _kind(index_map: IndexMap, index: PrimExpr, block: stmt.Block) -> IterVarKind:
    kinds = {
        it.iter_type
        for var, it in zip(index_map.initial_indices, block.iter_vars, strict=True)
        if mentions(index, (var,))
    }
    if len(kinds) > 1:
        raise refused(f"the index {index} is of spatial and of reduction variables", block)
    return kinds.pop() if kinds else IterVarKind.DataPar


_EXPLICIT = {"read": "explicit_read_region", "write": "explicit_write_region"}


def reorder_block_iter_var(state: State, block: stmt.Block, new_order: Sequence[int]) -> None:
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


def region_of(function: Callable[..., Any] | IndexMap, block: stmt.Block) -> list[Range]:
    """The region that a function returns for the variables of `block`.

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


def as_index_map(block: stmt.Block, ranges: Sequence[Range]) -> IndexMap:
    """The map from the variables of a block to the ends of ranges."""
    copies = [it.var.renamed(it.var.name) for it in block.iter_vars]
    at = {it.var: copy for it, copy in zip(block.iter_vars, copies, strict=True)}
    ends = [end for rng in ranges for end in (rng.min, rng.min + rng.extent)]
    return IndexMap(tuple(copies), tuple(substitute(end, at) for end in ends))


def _range(item: Any) -> Range:
    match item:
        case (start, stop):
            first = ops.convert(start)
            extent = Analyzer().simplify(ops.convert(stop) - first)
            return Range.from_min_extent(first, extent)
        case tuple() | list():
            raise unexpected(item, "a range of a region is a value, or a begin and an end")
        case _:
            return Range.from_min_extent(ops.convert(item), ops.const(1, ops.convert(item).dtype))


def annotate_buffer_access(
    state: State, block: stmt.Block, which: int, kind: str, ranges: Sequence[Range]
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
    state: State, block: stmt.Block, which: BufferName, separators: Sequence[int]
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
    renewed: dict[stmt.Block, stmt.Block] = {}
    root = with_buffer(state.root, old, new, renewed)
    params = tuple(new if b is old else b for b in state.func.buffer_map_items)
    realize = replace(state.realize(state.root), block=root)
    state.become(state.func.with_fields(body=realize, buffer_map_items=params), renewed)


def unsafe_set_dtype(state: State, block: stmt.Block, which: int, dtype: str) -> None:
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
    assert isinstance(root, stmt.Block)
    realize = replace(state.realize(state.root), block=root)
    state.become(state.func.with_fields(body=realize), retyped.renewed)


def _pointer(buffer: Buffer, dtype: DataType) -> Var:
    return decl_buffer(buffer.shape, dtype, buffer.name, scope=buffer.scope()).data


class _Retyped:
    """Replaces buffers by those of another datatype, and casts loads and stores."""

    def __init__(self, buffers: Mapping[Buffer, Buffer]) -> None:
        self.buffers = buffers
        self.renewed: dict[stmt.Block, stmt.Block] = {}

    def visit(self, item: Node) -> Node:
        """`item` with the buffers below it replaced."""
        if isinstance(item, Buffer):
            return self.buffers.get(item, item)
        if item._variable:
            return item
        match item:
            case stmt.BufferStore(buffer=buffer) if buffer in self.buffers:
                new = self.buffers[buffer]
                indices = tuple(map(self._expr, item.indices))
                return stmt.BufferStore(
                    new, ops.cast_to(self._expr(item.value), new.dtype), indices
                )
            case BufferLoad(buffer=buffer) if buffer in self.buffers:
                indices = tuple(map(self._expr, item.indices))
                return ops.cast_to(BufferLoad(self.buffers[buffer], indices), buffer.dtype)
            case stmt.MatchBufferRegion(buffer=buffer, source=source) if buffer in self.buffers:
                found = self.visit(source)
                assert isinstance(found, BufferRegion)
                return stmt.MatchBufferRegion(self.buffers[buffer], found)
            case _:
                new_item = map_children(self.visit, item)
        if (
            isinstance(item, stmt.Block)
            and isinstance(new_item, stmt.Block)
            and new_item is not item
        ):
            self.renewed[item] = new_item
        return new_item

    def _expr(self, expr: PrimExpr) -> PrimExpr:
        new = self.visit(expr)
        assert isinstance(new, PrimExpr)
        return new
