"""Emits selects between two values: for each element, or at one position along an axis."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from relaxpy.exec.kernel.emit.gathers import without_widening, wrapped_size
from relaxpy.exec.kernel.emit.values import Output, Value
from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.python_ast import assign, call, do, item
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.op import Op
from relaxpy.ir.tir.expr import EQ, Call, IntImm, PrimExpr, Select
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.kernel.emit.arrays import ArrayEmitter

FEW_POSITIONS = 32
"""Along an axis with fewer positions it is faster to compare each one."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A select: `yes` where the condition holds, and `no` elsewhere."""

    condition: PrimExpr
    yes: PrimExpr
    no: PrimExpr


def choice_of(expr: PrimExpr) -> Choice | None:
    """`expr` as a select, or None if it is not one."""
    match expr:
        case Select(condition=condition, true_value=yes, false_value=no):
            return Choice(condition, yes, no)
        case Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
            return Choice(condition, yes, no)
        case _:
            return None


def choose(emitter: ArrayEmitter, choice: Choice, out: Output | None) -> Value:
    """The value of a select; this is `out` if the select can write to it."""
    size = wrapped_size(choice.condition, choice.yes, choice.no)
    if size is not None and not emitter.varies(size):
        index = emitter.value(choice.no)
        node = call("rt.wrapped", index.node, emitter.scalars.value(size))
        return emitter.named(Value(node, index.dims, choice.no.dtype))  # it may be the index itself
    condition, yes, no = _operands(emitter, choice)
    dims, dtype = condition.dims | yes.dims | no.dims, choice.yes.dtype
    yes, no = emitter.typed(choice.yes, yes), emitter.typed(choice.no, no)
    if not condition.dims and yes.dims == no.dims:
        return Value(ast.IfExp(condition.node, yes.node, no.node), dims, dtype)
    node = call("rt.where", condition.node, yes.node, no.node)
    if out is not None and out.reads is not None and out.dims == dims and out.dtype == dtype:
        node.keywords.append(ast.keyword("out", out.node))
        emitter.lines.append(do(node))
        return Value(out.node, dims, dtype)
    return emitter.fresh(node, dims, dtype)


def _operands(emitter: ArrayEmitter, choice: Choice) -> tuple[Value, Value, Value]:
    """The condition, and both values, each computed only where it is used."""
    condition = emitter.value(choice.condition)
    fails = call("np.logical_not", condition.node)
    yes = emitter.only_where(condition.node, choice.yes)
    return condition, yes, emitter.only_where(fails, choice.no)


def store_choice(emitter: ArrayEmitter, choice: Choice, out: Output) -> bool:
    """Store a select by two stores if that is faster, and return whether it is.

    It is where the condition depends on positions only, since NumPy is fast with regular masks, or
    holds at one position along an axis.
    """
    condition = choice.condition
    if not out.free or emitter.guards or out.dims != emitter.variables:
        return False
    single = _single_position(emitter, choice)
    if single is not None:
        axis, position = single
        positions = emitter.compute(without_widening(position)).node
        one, others = (emitter.scalars.value(e, typed=True) for e in (choice.yes, choice.no))
        emitter.lines.append(assign(_whole(out), others))
        emitter.lines.append(do(call("rt.store_at", out.node, positions, axis, one)))
        return True
    varying = emitter.varies(choice.yes), emitter.varies(choice.no)
    if next(loads(condition), None) is not None or not emitter.varies(condition):
        return False
    # The output may alias an operand, which only the first store reads.
    if all(varying):
        return False
    for operand in (condition, choice.yes, choice.no):
        emitter.count_uses(operand)
    mask, yes, no = _operands(emitter, choice)
    first, second = emitter.typed(choice.no, no), emitter.typed(choice.yes, yes)
    where = mask.node
    if varying[0]:
        first, second, where = second, first, call("np.logical_not", where)
    emitter.lines.append(assign(_whole(out), first.node))
    emitter.lines.append(do(call("np.copyto", out.node, second.node, where=where)))
    return True


def _whole(out: Output) -> ast.expr:
    return out.node if isinstance(out.node, ast.Subscript) else item(out.node, ...)


def _single_position(emitter: ArrayEmitter, choice: Choice) -> tuple[int, PrimExpr] | None:
    """The axis of the layout along which one value differs from the others, and its position."""
    if emitter.varies(choice.yes) or emitter.varies(choice.no):
        return None
    if not isinstance(choice.condition, EQ):
        return None
    sides = choice.condition.a, choice.condition.b
    for side, position in (sides, sides[::-1]):
        var = without_widening(side)
        for number, axis in enumerate(emitter.layout):
            few = isinstance(axis.stop, IntImm) and axis.stop.value < FEW_POSITIONS
            if axis.var is var and as_poly(axis.start).same(0) and not few:
                return None if mentions(position, {axis.var}) else (number, position)
    return None
