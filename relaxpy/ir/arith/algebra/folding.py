"""Constant folding, neutral operands, vectors with known lanes, and the shape of expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeGuard

from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass

_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)


def folded(node: PrimExpr) -> PrimExpr:
    """`node`, whose operands are simplified, or its folded value.

    Rule: Floating-point rewrites only if they keep every value, NaN and signed zeros included:
        operations on literals, x + -0.0, x - 0.0, x * 1 and x / 1.
    """
    if isinstance(node, tir.BinaryOpExpr) and _are_literals(node):
        value = ops.folded(node)
        return node if value is None else value
    rule = _RULES.get(type(node))
    return node if rule is None else rule(node)


def _are_literals(node: tir.BinaryOpExpr) -> bool:
    return isinstance(node.a, tir.ConstExpr) and isinstance(node.b, tir.ConstExpr)


def _cast(node: PrimExpr) -> PrimExpr:
    assert isinstance(node, tir.Cast)
    value, dtype = node.value, node.dtype
    if value.dtype == dtype:
        return value
    if not isinstance(value, (tir.IntImm, tir.FloatImm)) or not (dtype.is_int or dtype.is_float):
        return node
    if dtype.is_int and not dtype.is_bool:
        low, high = ops.int_range(dtype)
        number = ops.exact(value)
        # C leaves the value undefined.
        if not math.isfinite(number) or not low <= int(number) <= high:
            return node
    return ops.cast_to(value, dtype)


def _number(value: PrimExpr) -> float | None:
    return value.value if isinstance(value, tir.FloatImm) else None


def _sum(node: PrimExpr) -> PrimExpr:
    assert isinstance(node, tir.BinaryOpExpr)
    addition = isinstance(node, tir.Add)
    if ops.is_neutral_term(node.b, negative=addition):
        return node.a
    return node.b if addition and ops.is_neutral_term(node.a, negative=True) else node


def _product(node: PrimExpr) -> PrimExpr:
    assert isinstance(node, tir.BinaryOpExpr)
    if _number(node.b) == 1:
        return node.a
    return node.b if isinstance(node, tir.Mul) and _number(node.a) == 1 else node


def _call(node: PrimExpr) -> PrimExpr:
    assert isinstance(node, tir.Call)
    match getattr(node.op, "name", ""), node.args:
        case "tir.if_then_else", (condition, yes, no):
            return _choice(node, condition, yes, no)
        case "tir.clz", (tir.IntImm(value=value) as arg,):
            bits = arg.dtype.bits
            return ops.const(bits - (value % (1 << bits)).bit_length(), node.dtype)
        case "tir.popcount", (tir.IntImm(value=value) as arg,):
            return ops.const((value % (1 << arg.dtype.bits)).bit_count(), node.dtype)
        case _, (tir.IntImm() as a, tir.IntImm() as b) if isinstance(node.op, Op):
            return _bits(node, node.op.name, a, b)
        case _:
            return node


def _bits(node: PrimExpr, name: str, a: tir.IntImm, b: tir.IntImm) -> PrimExpr:
    if not name.startswith(("tir.bitwise_", "tir.shift_")) or a.dtype != b.dtype:
        return node
    is_out_of_range = name.startswith("tir.shift_") and not 0 <= b.value < a.dtype.bits
    return node if is_out_of_range else ops.bitwise(name, a, b)


def _select(node: PrimExpr) -> PrimExpr:
    assert isinstance(node, tir.Select)
    return _choice(node, node.condition, node.true_value, node.false_value)


def chosen(node: PrimExpr, condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
    """A choice of the kind of `node` between other values, folded."""
    if isinstance(node, tir.Call):
        choice: PrimExpr = tir.Call(node.dtype, node.op, (condition, yes, no))
    else:
        choice = tir.Select(condition, yes, no)
    return folded(choice)


def _choice(node: PrimExpr, condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
    """A decided choice; two nested ones with one fallback join their conditions."""
    if isinstance(condition, tir.IntImm):
        return yes if condition.value else no
    if yes is no:
        return yes
    nested = operands_of_choice(yes)
    if nested is None or nested[2] is not no or type(yes) is not type(node):
        return node
    if nested[0].dtype != condition.dtype or not is_safe(nested[0]):
        return node
    return chosen(node, ops.all_of(condition, nested[0]), nested[1], no)


def inlined(expr: PrimExpr) -> PrimExpr:
    """The body of a Let, and of those in it, with their values for the variables."""
    while isinstance(expr, tir.Let):
        expr = substitute(expr.body, {expr.var: expr.value})
    return expr


def uses(expr: PrimExpr, var: Var) -> int:
    """The number of uses of `var` in `expr`, at most 2; shared subexpressions count at each use."""
    count, stack = 0, [expr]
    while stack and count < 2:
        node = stack.pop()
        count += node is var
        stack += [c for c in children(node) if isinstance(c, PrimExpr) and mentions(c, (var,))]
    return count


def operands(expr: PrimExpr, kind: type[PrimExpr]) -> list[PrimExpr]:
    """The operands of a chain of Min, Max, And or Or, from the left, shared subchains once."""
    leaves: list[PrimExpr] = []
    visited: set[PrimExpr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if type(node) is not kind:
            leaves.append(node)
        elif node not in visited:
            assert isinstance(node, (tir.BinaryOpExpr, tir.Junction))
            visited.add(node)
            stack += [node.b, node.a]
    return leaves


def conjuncts(condition: PrimExpr) -> Iterator[PrimExpr]:
    """The conditions that all hold where `condition` does; none for the literal True."""
    match condition:
        case tir.IntImm(value=1):
            return
        case tir.Call(op=Op(name="tir.likely"), args=(hint,)):
            yield from conjuncts(hint)
        case tir.And():
            for operand in operands(condition, tir.And):
                yield from conjuncts(operand)
        case _:
            yield condition


def terms(expr: tir.Add | tir.Sub) -> dict[PrimExpr, int]:
    """The terms of a chain of sums and differences, each with its factor."""
    a, b = expr.a, expr.b
    if not isinstance(a, (tir.Add, tir.Sub)) and not isinstance(b, (tir.Add, tir.Sub)):
        sign = 1 if isinstance(expr, tir.Add) else -1
        return {a: 1, b: sign} if a is not b else {a: 1 + sign}
    order: list[PrimExpr] = []
    visited: set[PrimExpr] = set()
    stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in visited:
            visited.add(node)
            stack.append((node, True))
            if isinstance(node, (tir.Add, tir.Sub)):
                stack += [(node.b, False), (node.a, False)]
    times: dict[PrimExpr, int] = {expr: 1}
    for node in reversed(order):
        if isinstance(node, (tir.Add, tir.Sub)):
            factor = times.pop(node)
            times[node.a] = times.get(node.a, 0) + factor
            sign = 1 if isinstance(node, tir.Add) else -1
            times[node.b] = times.get(node.b, 0) + sign * factor
    return times


def _is_number(value: PrimExpr) -> bool:
    return isinstance(value, tir.IntImm) and value.value != 0


def operands_of_choice(expr: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    """The condition and both values of a Select or an if_then_else; None for anything else."""
    match expr:
        case tir.Select(condition=condition, true_value=yes, false_value=no):
            return condition, yes, no
        case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
            return condition, yes, no
        case _:
            return None


def is_safe(expr: PrimExpr) -> bool:
    """True if `expr` may be evaluated speculatively: no load, no call, no unproved division."""
    return not any(
        isinstance(node, BufferLoad)
        or (isinstance(node, tir.Call) and effect_of(node) > CallEffectKind.Pure)
        or (isinstance(node, _DIVISIONS) and not _is_number(node.b))
        for node in walk(expr)
    )


def are_opposite(a: tir.PrimExpr, b: tir.PrimExpr) -> bool:
    """True if one is the negation of the other."""
    return (isinstance(a, tir.Not) and a.a is b) or (isinstance(b, tir.Not) and b.a is a)


_RULES: dict[type[PrimExpr], Callable[[PrimExpr], PrimExpr]] = {
    tir.Cast: _cast,
    tir.Add: _sum,
    tir.Sub: _sum,
    tir.Mul: _product,
    tir.Div: _product,
    tir.Call: _call,
    tir.Select: _select,
}


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vector base, base + stride, …; `stride` is None for a broadcast."""

    base: PrimExpr
    stride: PrimExpr | None
    count: int | PrimExpr

    @staticmethod
    def of(expr: PrimExpr) -> Lanes | None:
        """The lanes of a Ramp or a Broadcast; None for any other vector."""
        match expr:
            case tir.Ramp(base=base, stride=stride, lanes=count):
                return Lanes(base, stride, count)
            case tir.Broadcast(value=value, lanes=count):
                return Lanes(value, None, count)
            case _:
                return None

    @property
    def last(self) -> PrimExpr | None:
        """The last lane, where that is a known multiple of the stride after the first."""
        if self.step is None or not isinstance(self.count, int):
            return None
        dtype, length = self.base.dtype, self.step * (self.count - 1)
        low, high = ops.int_range(dtype)
        return tir.Add(self.base, tir.IntImm(dtype, length)) if low <= length <= high else None

    @property
    def step(self) -> int | None:
        """The stride, if it is a literal."""
        if self.stride is None:
            return 0
        return self.stride.value if isinstance(self.stride, tir.IntImm) else None


def divides_by_zero(expr: PrimExpr) -> TypeGuard[tir.BinaryOpExpr]:
    """True if `expr` divides every lane of a vector by a literal 0, which has no value (PX-3)."""
    if not isinstance(expr, _DIVISIONS):
        return False
    lanes = Lanes.of(expr.b)
    if lanes is None or lanes.stride is not None:
        return False
    return isinstance(lanes.base, tir.IntImm) and lanes.base.value == 0
