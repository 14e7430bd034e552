"""Hoists tables: local buffers that store the same literals in every iteration."""

from __future__ import annotations

from relaxpy.exec.kernel.nest.nodes import (
    Branch,
    Item,
    Loop,
    Nest,
    Store,
    WhileLoop,
    bodies,
    expressions,
    loads,
    passed_memory,
    stored_buffers,
    walk_items,
)
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm
from relaxpy.support.dataclass import replace


def fill_tables_first(nest: Nest) -> Nest:
    """`nest` with the stores to tables before its loops, so that iterations do not depend on them.

    A table is a local buffer whose every element is only assigned one literal. Earlier values are
    undefined.
    """
    local = {entry.buffer for entry in nest.local} - {*nest.views, *nest.views.values()}
    if not local or not any(isinstance(item, Loop) for item in nest.items):
        return nest
    tables: dict[Buffer, dict[tuple[object, ...], Store]] = {buffer: {} for buffer in local}
    for buffer in _others(nest.items):
        tables.pop(buffer, None)
    for item in walk_items(nest.items):
        if isinstance(item, Store) and item.buffer in tables:
            first = tables[item.buffer].setdefault(item.indices, item)
            if not _is_literal(item) or first.value is not item.value:
                del tables[item.buffer]
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
