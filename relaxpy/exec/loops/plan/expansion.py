"""Local buffers: array expansion (privatisation), and tables.

A buffer local to an iteration gets an axis for the loop. A buffer that stores the same literals in
every iteration is a table, which is filled once before the loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import cast

from relaxpy.exec.loops.nest.nodes import (
    Axis,
    Bind,
    Branch,
    Item,
    Local,
    Loop,
    Nest,
    PassedMemory,
    Store,
    WhileLoop,
    bodies,
    expressions,
    loads,
    map_expressions,
    passed_memory,
    stored_buffers,
    walk_items,
)
from relaxpy.exec.machine.tuning import Plans
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace

Expanded = Mapping[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]]


def expand_locals(nest: Nest, arguments: Iterable[Buffer]) -> Nest:
    """`nest` with each buffer that is local to loops allocated once, with a dimension per loop.

    This removes dependences between iterations. Loops with unknown bounds are not expanded, nor
    outer ones that would make the buffer much larger than all `arguments`.
    """
    most = Plans.ELEMENTS
    if any(entry.axes for entry in nest.local):
        most = max(most, *(Plans.GROWTH * _element_count(b.shape) for b in arguments), 0)
    expanded: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
    local: list[Local] = []
    laid_over = {*nest.views, *nest.views.values()}
    uses = Counter(entry.buffer for entry in nest.local)
    bound = {item.var for item in walk_items(nest.items) if isinstance(item, Bind)}
    for buffer, entry in {entry.buffer: entry for entry in nest.local}.items():
        if not entry.axes or buffer in laid_over or uses[buffer] > 1 or not _is_fixed(entry, bound):
            local.append(replace(entry, axes=()))
            continue
        shape = list(buffer.shape)
        expanded_axes: list[Axis] = []
        for axis in reversed(entry.axes):
            extent = axis.extent.expr()
            if _element_count([extent, *shape]) > most:
                break
            shape.insert(0, extent)
            expanded_axes.insert(0, axis)
        if not expanded_axes:
            local.append(replace(entry, axes=()))
            continue
        wide = decl_buffer(shape, buffer.dtype, buffer.name)
        expanded[buffer] = wide, tuple(a.var - a.start for a in expanded_axes)
        local.append(Local(wide, ()))
    if not expanded:
        return replace(nest, local=tuple(local))
    items = tuple(_rewrite_item(item, expanded) for item in nest.items)
    return replace(nest, items=items, local=tuple(local))


def _element_count(shape: Iterable[PrimExpr]) -> int:
    """An estimate of the number of elements of a shape."""
    from relaxpy.ir.arith.tvm.analyzer import Analyzer  # few plans need it

    total = 1
    for size in shape:
        variables = {v for v in walk(size) if isinstance(v, Var)}
        guesses = {v: min(Plans.UNKNOWN, ops.int_range(v.dtype)[1]) for v in variables}
        estimated = substitute(size, {v: ops.const(n, v.dtype) for v, n in guesses.items()})
        estimate = Analyzer().simplify(estimated)
        total *= max(estimate.value, 1) if isinstance(estimate, IntImm) else Plans.UNKNOWN
    return total


def _is_fixed(entry: Local, bound: Set[Var]) -> bool:
    """True if the loop bounds and the shape can be hoisted out of the loops safely.

    They depend neither on these loops, on loads, nor on variables that statements bind, and have no
    divisor that may be zero: the bounds of a loop inside an empty one are not evaluated.
    """
    variables = bound | {a.var for a in entry.axes}
    bounds = [b for a in entry.axes for b in (a.start, a.stop)]
    return not any(
        mentions(b, variables)
        or next(loads(b), None) is not None
        or any(map(ops.may_divide_by_zero, walk(b)))
        for b in (*bounds, *entry.buffer.shape)
    )


def _rewrite_item(item: Item, expanded: Expanded) -> Item:
    rewritten = map_expressions(item, lambda expr: _rewrite_expr(expr, expanded))
    return _rewrite_stores(rewritten, expanded)


def _rewrite_stores(item: Item, expanded: Expanded) -> Item:
    """`item` with its stores to the expanded buffers."""
    match item:
        case Store(buffer=buffer, indices=indices) if buffer in expanded:
            wide, iteration = expanded[buffer]
            return replace(item, buffer=wide, indices=(*iteration, *indices))
        case Loop(body=body) | WhileLoop(body=body):
            return replace(item, body=tuple(_rewrite_stores(i, expanded) for i in body))
        case Branch(body=body, orelse=orelse):
            yes, no = (tuple(_rewrite_stores(i, expanded) for i in side) for side in (body, orelse))
            return replace(item, body=yes, orelse=no)
        case _:
            return item


def _rewrite_expr(expr: PrimExpr, expanded: Expanded) -> PrimExpr:
    def rule(node: Node) -> Node | None:
        if isinstance(node, BufferLoad) and node.buffer in expanded:
            wide, iteration = expanded[node.buffer]
            return BufferLoad(wide, (*iteration, *node.indices))
        if isinstance(node, PassedMemory) and node.buffer in expanded:
            wide, iteration = expanded[node.buffer]
            region = node.region or tuple(Range(0, s) for s in node.buffer.shape)
            points = map(Range.point, iteration)
            return PassedMemory(wide, (*points, *region), node.drop + len(iteration))
        return None

    return cast("PrimExpr", rewrite(expr, rule))


def fill_tables_first(nest: Nest) -> Nest:
    """`nest` with the stores to tables before its loops, so that iterations do not depend on them.

    A table is a local buffer whose every element is only assigned one literal. Earlier values are
    undefined.
    """
    local = {entry.buffer for entry in nest.local} - {*nest.views, *nest.views.values()}
    if not local or not any(isinstance(item, Loop) for item in nest.items):
        return nest
    tables: dict[Buffer, dict[tuple[object, ...], Store]] = {buffer: {} for buffer in local}
    for item in walk_items(nest.items):
        if isinstance(item, Store) and item.buffer in tables:
            first = tables[item.buffer].setdefault(item.indices, item)
            if not _is_literal(item) or first.value is not item.value:
                del tables[item.buffer]
    for buffer in _others(nest.items) if tables else ():
        tables.pop(buffer, None)
    inside = {b for item in nest.items if bodies(item) for b in stored_buffers((item,))}
    moved = tables.keys() & inside
    if not moved:
        return nest
    stores = [store for b, table in tables.items() if b in moved for store in table.values()]
    return replace(
        nest,
        items=(*stores, *_without(nest.items, moved)),
        local=tuple(replace(e, axes=()) if e.buffer in moved else e for e in nest.local),
    )


def _is_literal(store: Store) -> bool:
    """True if a literal is stored in bounds."""
    pairs = zip(store.indices, store.buffer.shape, strict=True)
    return isinstance(store.value, (IntImm, FloatImm)) and all(
        isinstance(i, IntImm) and isinstance(size, IntImm) and 0 <= i.value < size.value
        for i, size in pairs
    )


def _others(items: tuple[Item, ...]) -> set[Buffer]:
    """The buffers that calls take, or that are stored to where this depends on other buffers."""
    found: set[Buffer] = set()
    for item in walk_items(items):
        found |= {memory.buffer for expr in expressions(item) for memory in passed_memory(expr)}
        depends = any(next(loads(expr), None) is not None for expr in expressions(item))
        if isinstance(item, WhileLoop) or (isinstance(item, (Loop, Branch)) and depends):
            found |= stored_buffers((item,))
    return found


def _without(items: tuple[Item, ...], tables: set[Buffer]) -> tuple[Item, ...]:
    """`items` without stores to `tables`, and without loops and branches that become empty."""
    result: list[Item] = []
    for item in items:
        match item:
            case Store(buffer=buffer) if buffer in tables:
                continue
            case Loop(body=body):
                item = replace(item, body=_without(body, tables))
            case Branch(body=body, orelse=orelse):
                yes, no = _without(body, tables), _without(orelse, tables)
                item = replace(item, body=yes, orelse=no)
            case _:
                pass
        if any(bodies(item)) or not bodies(item):
            result.append(item)
    return tuple(result)
