"""Interchanges loops: runs a store along long axes for each position of a short innermost one.

NumPy loops along the innermost axis of the target, and restarts for each position of the others. If
that axis is short, a Python loop over it with strided stores is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from relaxpy.exec.kernel.emit.values import converted_by_store
from relaxpy.exec.kernel.nest.bounds import may_fail
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import For, Plan, Run, Tree
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace

_SHORT = 4
"""The longest axis that a Python loop runs over."""
_NEAR = 32
"""The largest stride, in bytes, of the elements that such a loop stores."""
_LEAST_LONG = 1 << 10
"""The number of elements from which a strided store outweighs the overhead of its call."""
_SIMPLE = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min)
"""Operations that are as fast with strided operands, if there is only one."""

_Maps: TypeAlias = Sequence[Affine]


def with_short_loops(plan: Plan) -> Plan:
    """`plan` with a loop over each axis of few elements that is the innermost of a simple store.

    Rule:
        The store copies, broadcasts, or does one operation, which cannot fail. Its iterations may
        be in any order, and it reads no memory that it writes. The other axes are long, and in the
        same order in all operands, so that no stride grows. NumPy cannot coalesce the axis with the
        next one, as it does where both are contiguous in all operands.
    """
    return replace(plan, trees=tuple(_looped(tree, plan, ()) for tree in plan.trees))


def _looped(tree: Tree, plan: Plan, outer: tuple[Axis, ...]) -> Tree:
    match tree:
        case For(axis=axis, body=body):
            return replace(tree, body=tuple(_looped(t, plan, (*outer, axis)) for t in body))
        case Run():
            statement = tree.store
            if statement is None or not _is_simple(statement, plan):
                return tree
            short = _short_axis(statement, tree.axes)
            if short is None or short.var not in plan.independent(tree, outer):
                return tree
            rest = replace(tree, axes=tuple(a for a in tree.axes if a is not short))
            reason = f"an axis of {short.extent.constant} elements is too short for vectors"
            return For(short, (_looped(rest, plan, (*outer, short)),), reason)
        case _:
            return tree


def _is_simple(statement: Assignment, plan: Plan) -> bool:
    """True if an unguarded store copies or does one operation, and reads other memory."""
    if statement.guards or statement.target in plan.reshaped:
        return False
    target = plan.root(statement.target)
    if any(plan.root(read.buffer) is target for read in statement.reads):
        return False
    axes, shape_vars = statement.axes, plan.shape_vars
    accesses = (BufferLoad(statement.target, statement.indices), statement.value)
    if any(may_fail(access, axes, shape_vars) for access in accesses):
        return False
    value = statement.value
    if isinstance(value, _SIMPLE):
        return _is_operand(value.a) and _is_operand(value.b)
    source = converted_by_store(value)
    return _is_operand(value if source is None else source)


def _is_operand(expr: tir.PrimExpr) -> bool:
    return isinstance(expr, (BufferLoad, tir.IntImm, tir.FloatImm))


def _short_axis(statement: Assignment, axes: Sequence[Axis]) -> Axis | None:
    """The innermost axis of the target, if a loop over it is faster; otherwise None."""
    operands = [(statement.target, _maps(statement.indices, axes))]
    operands += [(x.buffer, _maps(x.indices, axes)) for x in loads(statement.value)]
    known = [(buffer, maps) for buffer, maps in operands if maps is not None]
    order = _innermost_last(known[0][1]) if len(known) == len(operands) else None
    if not order:
        return None
    inner = next(a for a in axes if a.var is order[-1])
    near = as_poly(_NEAR) - inner.extent * statement.target.dtype.itemsize
    if not _is_short(inner) or not near.is_at_least(0, ()):
        return None
    others = [a for a in axes if a is not inner]
    if any(mentions(b, {inner.var}) for a in others for b in (a.start, a.stop)):
        return None
    count = math.prod((a.extent for a in others), start=as_poly(1)).constant
    if count is not None and count < _LEAST_LONG:
        return None
    long = {a.var for a in others if not _is_short(a)}
    for _, maps in known[1:]:
        found = _innermost_last(maps)
        used = [v for v in found or () if v in long]
        if found is None or used != [v for v in order if v in used]:
            return None
    return None if _is_joined(known, inner) else inner


def _is_short(axis: Axis) -> bool:
    """True if a loop over the axis has few iterations, but more than one."""
    count = axis.extent.constant
    return count is not None and 1 < count <= _SHORT


def _maps(indices: Sequence[tir.PrimExpr], axes: Sequence[Axis]) -> _Maps | None:
    """The indices as affine maps of `axes`, with constant factors; None if one is not."""
    variables = {a.var for a in axes}
    maps: list[Affine] = []
    for index in indices:
        is_computed = next(loads(index), None) is not None
        linear = None if is_computed else affine(index, variables)
        if linear is None or any(f.constant is None for f in linear.coefficients.values()):
            return None
        maps.append(linear)
    return maps


def _innermost_last(maps: _Maps) -> list[tir.Var] | None:
    """The axes by decreasing stride; None if one is used twice."""
    order = [
        var
        for m in maps
        for var in sorted(m.coefficients, key=lambda v: -abs(m.coefficients[v].constant or 0))
    ]
    return order if len(order) == len(set(order)) else None


def _is_joined(operands: Sequence[tuple[Buffer, _Maps]], inner: Axis) -> bool:
    """True if the axis is contiguous with the same next one in all operands."""
    nexts = {_next(buffer, maps, inner) for buffer, maps in operands}
    return len(nexts) == 1 and None not in nexts


def _next(buffer: Buffer, maps: _Maps, inner: Axis) -> tir.Var | None:
    """The axis of the rows that `inner` is, if these are contiguous."""
    if len(maps) < 2 or not inner.extent.same(as_poly(buffer.shape[-1])):
        return None
    *_, rows, columns = (m.coefficients for m in maps)
    if [*columns] != [inner.var] or not columns[inner.var].same(1) or len(rows) != 1:
        return None
    [(var, factor)] = rows.items()
    return var if factor.same(1) else None
