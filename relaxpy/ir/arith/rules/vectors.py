"""Vectors of integers and bools: ramps and broadcasts, simplified lane by lane."""

from __future__ import annotations

from math import gcd

from relaxpy.ir.arith.algebra import folding, interval, poly
from relaxpy.ir.arith.algebra.folding import Lanes
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.substitution import substitute


def simplify(engine: Engine, expr: PrimExpr) -> PrimExpr:
    """A vector over simple operands, and as one Ramp or Broadcast where it is one."""
    if isinstance(expr, tir.Let):
        return simplify(engine, substitute(expr.body, {expr.var: expr.value}))

    def simplify_node(node: Node) -> Node:
        return engine.simplify(node) if isinstance(node, PrimExpr) else node

    simple = map_children(simplify_node, expr)
    match simple:
        case tir.Ramp(base=base, stride=tir.IntImm(value=0), lanes=count):
            return tir.Broadcast(base, count)
        case tir.BinaryOpExpr(a=a, b=b):
            result = _binary(engine, simple, a, b)
        case tir.Junction(a=a, b=b):
            result = _joined(engine, simple, a, b)
        case tir.Not(a=tir.Broadcast(value=value, lanes=count)):
            result = tir.Broadcast(engine.simplify(tir.Not(value)), count)
        case tir.Cast(dtype=dtype, value=value):
            result = _cast(engine, dtype, value)
        case tir.Select(condition=condition, true_value=yes, false_value=no):
            result = _choice(condition, yes, no)
        case _:
            result = None
    return folding.folded(simple) if result is None else result


def _of(engine: Engine, lanes: Lanes) -> PrimExpr:
    base = engine.simplify(lanes.base)
    stride = None if lanes.stride is None else engine.simplify(lanes.stride)
    if stride is None or (isinstance(stride, tir.IntImm) and stride.value == 0):
        return tir.Broadcast(base, lanes.count)
    return tir.Ramp(base, stride, lanes.count)


def _binary(engine: Engine, expr: tir.BinaryOpExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    p, q, kind = Lanes.of(a), Lanes.of(b), type(expr)
    if p is None or q is None:
        return _nested(engine, kind, a, b)
    if p.stride is None and q.stride is None:
        return tir.Broadcast(engine.simplify(kind(p.base, q.base)), p.count)
    if not a.dtype.is_int:
        return None
    if not isinstance(expr, (tir.Add, tir.Sub, tir.Mul)) and _wraps(engine, p, q):
        return None
    if isinstance(expr, tir.CmpExpr):
        return _compared(engine, kind, p, q)
    match expr:
        case tir.Add() | tir.Sub():
            lanes = _linear(p, q, 1 if isinstance(expr, tir.Add) else -1)
            return None if lanes is None else _of(engine, lanes)
        case tir.Mul() if p.stride is None or q.stride is None:
            lanes = _times(p, q)
            return None if lanes is None else _of(engine, lanes)
        case tir.FloorDiv() | tir.FloorMod():
            return _divided(engine, kind, p, q)
        case tir.Div() | tir.Mod() if _not_negative(engine, p):
            floor = tir.FloorDiv if kind is tir.Div else tir.FloorMod
            return _divided(engine, floor, p, q)
        case tir.Min() | tir.Max() if p.stride is q.stride and a.dtype.family == "int":
            return _of(engine, Lanes(kind(p.base, q.base), p.stride, p.count))
        case _:
            return None


def _nested(
    engine: Engine, kind: type[tir.BinaryOpExpr], a: PrimExpr, b: PrimExpr
) -> PrimExpr | None:
    """min(min(v, broadcast(x)), broadcast(y)) = min(v, broadcast(min(x, y))); v + 0 = v * 1 = v."""
    match kind, b:
        case (tir.Add | tir.Sub, tir.Broadcast(value=tir.IntImm(value=0))):
            return a
        case (tir.Mul, tir.Broadcast(value=tir.IntImm(value=1))):
            return a
        case (tir.Min | tir.Max, tir.Broadcast(value=y, lanes=count)) if type(a) is kind:
            assert isinstance(a, tir.BinaryOpExpr)
            if isinstance(a.b, tir.Broadcast):
                return kind(a.a, tir.Broadcast(engine.simplify(kind(a.b.value, y)), count))
            return None
        case _:
            return None


def _wraps(engine: Engine, *vectors: Lanes) -> bool:
    """True if lanes of data may wrap around, so that they are not in order."""
    for lanes in vectors:
        if lanes.stride is None or lanes.base.dtype.family != "int":
            continue
        first = engine.exact(lanes.base)
        if lanes.step is None or not isinstance(lanes.count, int):
            if engine.has_data(first) or engine.has_data(engine.exact(lanes.stride)):
                return True
        else:
            last = poly.add(first, poly.constant(lanes.step * (lanes.count - 1)))
            if not engine.is_exact(last, lanes.base.dtype):
                return True
    return False


def _linear(p: Lanes, q: Lanes, sign: int) -> Lanes | None:
    """The lanes of p + q or p - q, unless the datatype cannot represent their stride."""
    if p.step is not None and q.step is not None and not _fits(p.step + sign * q.step, p):
        return None
    op = ops.add if sign > 0 else ops.sub
    zero = ops.const(0, p.base.dtype)
    stride = op(zero if p.stride is None else p.stride, zero if q.stride is None else q.stride)
    return Lanes(op(p.base, q.base), stride, p.count)


def _fits(stride: int, lanes: Lanes) -> bool:
    """True if a ramp of the datatype of `lanes` can have this stride; unsigned numbers wrap."""
    low, high = ops.int_range(lanes.base.dtype)
    return low <= stride <= high or lanes.base.dtype.family == "uint"


def _times(p: Lanes, q: Lanes) -> Lanes | None:
    if p.stride is None:
        p, q = q, p
    assert p.stride is not None
    factor = q.base.value if isinstance(q.base, tir.IntImm) else None
    if p.step is not None and factor is not None and not _fits(p.step * factor, p):
        return None
    return Lanes(ops.mul(p.base, q.base), ops.mul(p.stride, q.base), p.count)


def _not_negative(engine: Engine, p: Lanes) -> bool:
    """True if all lanes are >= 0."""
    if engine.bound(p.base)[0] < 0 or p.step is None:
        return False
    if p.step >= 0:
        return True
    last = p.last
    return last is not None and engine.bound(last)[0] >= 0


def _divided(engine: Engine, kind: type[tir.BinaryOpExpr], p: Lanes, q: Lanes) -> PrimExpr | None:
    """A ramp divided by a broadcast literal, rounded down.

    Rule:
        With c | s the quotients make a ramp, and the remainders are one; where no multiple of c
        lies between the lanes, the quotients are one and the remainders make a ramp.
    """
    by, step = q.base, p.step
    if q.stride is not None or not isinstance(by, tir.IntImm) or by.value <= 0 or step is None:
        return None
    if p.base.dtype.family != "int":
        return None
    c, is_quotient = by.value, kind is tir.FloorDiv
    base = kind(p.base, by)
    if step % c == 0:
        stride = ops.const(step // c, by.dtype) if is_quotient else None
        return _of(engine, Lanes(base, stride, p.count))
    if not isinstance(p.count, int):
        return _reduced(engine, kind, p, q)
    if _share_quotient(engine, p.base, c, step * (p.count - 1)):
        return _of(engine, Lanes(base, None if is_quotient else p.stride, p.count))
    return _reduced(engine, kind, p, q)


def _share_quotient(engine: Engine, base: PrimExpr, c: int, length: int) -> bool:
    """True if base and base + length have one quotient by c, by residue or by interval."""
    coeff, residue = engine.residue(base)
    common = gcd(coeff, c)
    first = residue % common
    if 0 <= first + length < common:
        return True
    low, high = engine.bound(base)
    ends = [interval.plus(end, offset) for end in (low, high) for offset in (0, length)]
    return all(isinstance(e, int) for e in ends) and len({e // c for e in ends}) == 1


def _reduced(engine: Engine, kind: type[tir.BinaryOpExpr], p: Lanes, q: Lanes) -> PrimExpr | None:
    """The remainders of a ramp, if that of its first lane is known: a ramp that starts there."""
    assert isinstance(q.base, tir.IntImm)
    coeff, residue = engine.residue(p.base)
    c = q.base.value
    if kind is not tir.FloorMod or coeff % c or isinstance(p.base, tir.IntImm):
        return None
    ramp = _of(engine, Lanes(ops.const(residue % c, p.base.dtype), p.stride, p.count))
    return tir.FloorMod(ramp, tir.Broadcast(q.base, q.count))


def _compared(engine: Engine, kind: type[tir.BinaryOpExpr], p: Lanes, q: Lanes) -> PrimExpr | None:
    """A comparison with the same result in all lanes: orderings by the first and the last lane."""
    if p.base.dtype.family != "int":
        return None
    x, y = p.last, q.last
    if x is None or y is None:
        return None
    ends = [(p.base, q.base), (x, y)]
    if kind in (tir.EQ, tir.NE):
        # Between lanes on either side a difference may be 0, so only a constant difference decides.
        ends = ends if p.step == q.step else []
    truths = {engine.simplify(kind(x, y)) for x, y in ends}
    if len(truths) != 1:
        return None
    [truth] = truths
    return tir.Broadcast(truth, p.count) if isinstance(truth, tir.IntImm) else None


def _joined(engine: Engine, expr: tir.Junction, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    for constant, other in ((a, b), (b, a)):
        if isinstance(constant, tir.Broadcast) and isinstance(constant.value, tir.IntImm):
            absorbs = bool(constant.value.value) == isinstance(expr, tir.Or)
            return constant if absorbs else other
    if isinstance(a, tir.Broadcast) and isinstance(b, tir.Broadcast):
        return tir.Broadcast(engine.simplify(type(expr)(a.value, b.value)), a.lanes)
    return a if a is b else None


def _cast(engine: Engine, dtype: DataType, value: PrimExpr) -> PrimExpr | None:
    """Casts of broadcasts, and of ramps of signed integers to wider ones, which cannot overflow."""
    lanes = Lanes.of(value)
    if lanes is None:
        return value if value.dtype == dtype else None
    element, source = dtype.element, value.dtype.element
    if lanes.stride is None:
        return tir.Broadcast(engine.simplify(tir.Cast(element, lanes.base)), lanes.count)
    if not source.startswith("int") or dtype.family != "int" or dtype.bits < value.dtype.bits:
        return None
    if _wraps(engine, lanes):
        return None
    base, stride = (tir.Cast(element, operand) for operand in (lanes.base, lanes.stride))
    return tir.Ramp(engine.simplify(base), engine.simplify(stride), lanes.count)


def _choice(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr | None:
    test = condition.value if isinstance(condition, tir.Broadcast) else condition
    if isinstance(test, tir.IntImm):
        return yes if test.value else no
    return yes if yes is no else None
