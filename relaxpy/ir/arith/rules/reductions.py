"""Reductions, simplified inside the domains of their axes, without unused values."""

from __future__ import annotations

from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.reduce import CommReducer, Reduce


def simplify(engine: Engine, expr: Reduce) -> PrimExpr:
    """A reduction over simplified sources; its value where there is no axis or no iteration."""
    inside = engine
    for axis in expr.axis:
        if axis.dom is not None:
            low = ops.compare(tir.LE, axis.dom.min, axis.var)
            high = ops.compare(tir.LT, axis.var, axis.dom.stop)
            inside = inside.where(inside.simplify(ops.all_of(low, high)), expr)
    condition = inside.simplify(expr.condition)
    where = condition.value if isinstance(condition, tir.IntImm) else None
    body = inside if where is not None else inside.where(condition, expr)
    init = tuple(map(engine.simplify, expr.init))
    index = expr.value_index
    if where == 0:
        start = init or expr.combiner.identity_element
        return start[index]
    source = tuple(map(body.simplify, expr.source))
    if where and not expr.axis:
        values = expr.combiner.combine(init, source) if init else source
        return engine.simplify(values[index])
    needed = _needed(expr)
    combiner = expr.combiner
    if len(needed) < len(source):
        combiner = CommReducer(
            tuple(combiner.lhs[k] for k in needed),
            tuple(combiner.rhs[k] for k in needed),
            tuple(combiner.result[k] for k in needed),
            tuple(combiner.identity_element[k] for k in needed),
        )
        source = tuple(source[k] for k in needed)
        init = tuple(init[k] for k in needed) if init else ()
        index = needed.index(index)
    return Reduce(combiner, source, expr.axis, condition, index, init)


def _needed(expr: Reduce) -> list[int]:
    """The positions of the values that the result depends on, or whose source has an effect."""
    combiner = expr.combiner
    needed = {k for k, source in enumerate(expr.source) if _has_effect(source)} | {expr.value_index}
    waiting = list(needed)
    while waiting:
        used = set(walk(combiner.result[waiting.pop()]))
        for position, operands in enumerate(zip(combiner.lhs, combiner.rhs, strict=True)):
            if position not in needed and not used.isdisjoint(operands):
                needed.add(position)
                waiting.append(position)
    return sorted(needed)


def _has_effect(source: PrimExpr) -> bool:
    return any(
        isinstance(node, tir.Call) and effect_of(node) > CallEffectKind.Pure
        for node in walk(source)
    )
