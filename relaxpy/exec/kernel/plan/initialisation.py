"""Reductions without any round where a program runs in the order of its text: their init."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from relaxpy.exec.kernel.nest.domain import conjuncts, has_no_iteration
from relaxpy.exec.kernel.nest.nodes import (
    Axis,
    Bind,
    Branch,
    Item,
    Loop,
    Make,
    Repeat,
    every,
    mapped,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute


def with_initialisation(items: tuple[Item, ...], sizes: Container[Var]) -> tuple[Item, ...]:
    """`items`, where each loop without a round still begins the blocks that it only reduces."""
    return tuple(found for item in items for found in _item(item, sizes))


def _item(item: Item, sizes: Container[Var]) -> Iterator[Item]:
    match item:
        case Loop(axis=axis, body=body):
            yield Loop(axis, with_initialisation(body, sizes))
            whole = reduced_by(body).get(axis.var)
            none = None if whole is None else has_no_iteration(whole, sizes)
            if whole is not None and none is not None:
                yield Branch(none, with_initialisation(tuple(_begun(body, whole, ())), sizes))
        case Branch(body=body, orelse=orelse):
            yes, no = with_initialisation(body, sizes), with_initialisation(orelse, sizes)
            yield replace(item, body=yes, orelse=no)
        case Repeat(body=body):
            yield replace(item, body=with_initialisation(body, sizes))
        case _:
            yield item


def reduced_by(items: tuple[Item, ...]) -> Mapping[Var, Axis]:
    """The loops, as they were written, that only reduce a block that begins in `items`."""
    branches = (item for item in every(items) if isinstance(item, Branch))
    return {axis.var: axis for branch in branches for axis in branch.first}


def _begun(items: tuple[Item, ...], loop: Axis, conditions: tuple[PrimExpr, ...]) -> Iterator[Item]:
    """The inits in `items` of blocks that `loop` only reduces, where it has no round.

    Of the `conditions` around them those that speak of this loop are not asked.
    """
    start = {loop.var: ops.cast_to(loop.start, loop.var.dtype)}
    for place, item in enumerate(items):
        match item:
            case Branch(first=first) if first:
                if any(axis.var is loop.var for axis in first):
                    asked = [test for test in conditions if not mentions(test, {loop.var})]
                    begun = _substituted(_at_start(item, loop), start)
                    yield from (Branch(ops.all_of(*asked), begun),) if asked else begun
            case Branch(condition=condition, body=body, orelse=orelse):
                yield from _begun(body, loop, (*conditions, *conjuncts(condition)))
                yield from _begun(orelse, loop, (*conditions, ops.logical_not(condition)))
            case Loop(axis=axis, body=body):
                found = tuple(_begun(body, loop, conditions))
                if found:
                    yield from _substituted((Loop(axis, found),), start)
            case Bind(var=var, value=value):
                rest = _substituted(items[place + 1 :], {var: value})
                yield from _begun(rest, loop, conditions)
                return
            case Make():
                yield item
            case _:
                pass


def _at_start(init: Branch, loop: Axis) -> tuple[Item, ...]:
    """`init` in the first round of `loop`."""
    here = ops.convert(loop.var.equal(loop.start))
    tests = [test for test in conjuncts(init.condition) if test is not here]
    others = tuple(axis for axis in init.first if axis.var is not loop.var)
    if not (tests or others):
        return init.body
    return (replace(init, condition=ops.all_of(True, *tests), first=others),)


def _substituted(items: tuple[Item, ...], values: Mapping[Var, PrimExpr]) -> tuple[Item, ...]:
    return tuple(mapped(item, lambda expr: substitute(expr, values)) for item in items)
