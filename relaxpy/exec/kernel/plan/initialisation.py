"""Initialisation of reductions without iterations, for items that run in the order of the text."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from relaxpy.exec.kernel.nest.domain import conjuncts, empty_condition
from relaxpy.exec.kernel.nest.nodes import (
    Alloc,
    Axis,
    Bind,
    Branch,
    Item,
    Loop,
    WhileLoop,
    substituted,
    walk_items,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions


def with_initialisation(items: tuple[Item, ...], shape_vars: Container[Var]) -> tuple[Item, ...]:
    """`items`, where a reduction loop without iterations still runs the inits of its blocks."""
    return tuple(result for item in items for result in _item(item, shape_vars))


def _item(item: Item, shape_vars: Container[Var]) -> Iterator[Item]:
    match item:
        case Loop(axis=axis, body=body):
            yield Loop(axis, with_initialisation(body, shape_vars))
            reduction = reduction_loops(body).get(axis.var)
            is_empty = None if reduction is None else empty_condition(reduction, shape_vars)
            if reduction is not None and is_empty is not None:
                yield Branch(
                    is_empty, with_initialisation(tuple(_inits(body, reduction, ())), shape_vars)
                )
        case Branch(body=body, orelse=orelse):
            yes, no = with_initialisation(body, shape_vars), with_initialisation(orelse, shape_vars)
            yield replace(item, body=yes, orelse=no)
        case WhileLoop(body=body):
            yield replace(item, body=with_initialisation(body, shape_vars))
        case _:
            yield item


def reduction_loops(items: tuple[Item, ...]) -> Mapping[Var, Axis]:
    """The original reduction loops of the blocks that `items` initialise."""
    branches = (item for item in walk_items(items) if isinstance(item, Branch))
    return {axis.var: axis for branch in branches for axis in branch.init_loops}


def _inits(items: tuple[Item, ...], loop: Axis, conditions: tuple[PrimExpr, ...]) -> Iterator[Item]:
    """The inits in `items` of blocks that `loop` reduces, for a loop without iterations.

    Enclosing `conditions` that mention the loop variable are not evaluated.
    """
    start = {loop.var: ops.cast_to(loop.start, loop.var.dtype)}
    for position, item in enumerate(items):
        match item:
            case Branch(init_loops=loops) if loops:
                if any(axis.var is loop.var for axis in loops):
                    tests = [test for test in conditions if not mentions(test, {loop.var})]
                    init = substituted(_init_at_start(item, loop), start)
                    yield from (Branch(ops.all_of(*tests), init),) if tests else init
            case Branch(condition=condition, body=body, orelse=orelse):
                yield from _inits(body, loop, (*conditions, *conjuncts(condition)))
                yield from _inits(orelse, loop, (*conditions, ops.logical_not(condition)))
            case Loop(axis=axis, body=body):
                inits = tuple(_inits(body, loop, conditions))
                if inits:
                    yield from substituted((Loop(axis, inits),), start)
            case Bind(var=var, value=value):
                following = substituted(items[position + 1 :], {var: value})
                yield from _inits(following, loop, conditions)
                return
            case Alloc():
                yield item
            case _:
                pass


def _init_at_start(init: Branch, loop: Axis) -> tuple[Item, ...]:
    """`init` in the first iteration of `loop`."""
    is_start = ops.convert(loop.var.equal(loop.start))
    tests = [test for test in conjuncts(init.condition) if test is not is_start]
    remaining = tuple(axis for axis in init.init_loops if axis.var is not loop.var)
    if not (tests or remaining):
        return init.body
    return (replace(init, condition=ops.all_of(True, *tests), init_loops=remaining),)
