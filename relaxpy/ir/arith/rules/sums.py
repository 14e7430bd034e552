"""Sums as expressions, rewritten to fewer terms first; reductions, simplified inside their axes."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly
from relaxpy.ir.arith.algebra.terms import Quotient, divisor, quotient_atom
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.reduce import CommReducer, Reduce

_CHOICES = (tir.Select, tir.Call)


def written(
    engine: Engine, p: Poly, dtype: DataType, *, exact: bool = False
) -> tir.PrimExpr | None:
    """p as an expression of `dtype`, equal modulo 2**bits, or (`exact`) equal; None if not safe."""
    shorter = p if exact else _shortened(engine, p, dtype)
    return terms.expression(shorter, dtype, engine.is_exact, exact=exact)


def _shortened(engine: Engine, p: Poly, dtype: DataType) -> Poly:
    """A polynomial of the same values that is shorter to write."""
    has_halves = has_choices = False
    for monomial in p:
        if len(monomial) == 1:
            has_halves = has_halves or isinstance(monomial[0], Quotient)
            has_choices = has_choices or isinstance(monomial[0], _CHOICES)
    if has_halves:
        p = _with_halves(p)
    return _joined(engine, p, dtype) if has_choices and len(p) > 1 else p


def _joined(engine: Engine, p: Poly, dtype: DataType) -> Poly:
    """p with choices by one condition joined; the choice takes the other terms if a branch cancels.

    Rule:
        Select(c, a, b) + Select(c, d, e) = Select(c, a + d, b + e), and so with if_then_else.
    """
    groups: dict[tuple[object, ...], list[Monomial]] = {}
    for monomial in p:
        operands = folding.operands_of_choice(monomial[0]) if len(monomial) == 1 else None
        if operands is not None:
            groups.setdefault((type(monomial[0]), operands[0]), []).append(monomial)
    out = dict(p)
    for members in groups.values():
        monomials = [m for m in members if m in out]  # others were joined before
        if not monomials:
            continue
        remaining = {m: c for m, c in out.items() if m not in monomials}
        sides: list[dict[Monomial, int]] = [{}, {}]
        for monomial in monomials:
            operands = folding.operands_of_choice(monomial[0])
            assert operands is not None
            for side, branch in zip(sides, operands[1:], strict=True):
                poly.accumulate(side, engine.poly(branch), out[monomial])
        sums = [poly.add(side, remaining) for side in sides]
        takes_all = bool(remaining) and any(not side for side in sums)
        if len(monomials) == 1 and not takes_all:
            continue
        node, test = monomials[0][0], folding.operands_of_choice(monomials[0][0])
        assert test is not None
        values = [written(engine, s, dtype) for s in (sums if takes_all else sides)]
        yes, no = values
        if yes is None or no is None:
            continue
        joined = folding.chosen(node, test[0], yes, no)
        again = folding.operands_of_choice(joined)
        value = engine.poly(joined) if again is None else poly.atom(joined)
        out = dict(value) if takes_all else {**poly.add(remaining, value)}
    return out


def _with_halves(p: Poly) -> Poly:
    """p with halves that are rounded down and up put together.

    Rule:
        r // 2 + (r + 1) // 2 = r; the remaining r - r // 2 is (r + 1) // 2.
    """
    halves = [m for m in p if len(m) == 1 and isinstance(m[0], Quotient) and _is_half(m[0])]
    if not halves:
        return p
    out = dict(p)
    for monomial in halves:
        [atom] = monomial
        assert isinstance(atom, Quotient)
        num = dict(atom.num)
        lower = _half(halves, {m: c for m, c in num.items() if m})
        if num.get(ONE) != 1 or lower is None or not {monomial, lower} <= out.keys():
            continue
        factor = out.pop(monomial)
        num.pop(ONE)
        poly.accumulate(out, num, factor)
        poly.accumulate(out, {lower: 1}, -factor)
    for monomial in halves:
        [atom] = monomial
        assert isinstance(atom, Quotient)
        num, factor = dict(atom.num), -out.get(monomial, 0)
        if factor > 0 and ONE not in num and all(out.get(m) == factor * c for m, c in num.items()):
            poly.accumulate(out, num, -factor)
            del out[monomial]
            up = quotient_atom(poly.add(num, poly.constant(1)), poly.constant(2), floor=True)
            poly.accumulate(out, {(up,): 1}, factor)
    return out


def _is_half(atom: Quotient) -> bool:
    return atom.floor and divisor(atom) == 2


def _half(halves: Sequence[Monomial], num: Poly) -> Monomial | None:
    for monomial in halves:
        [atom] = monomial
        if isinstance(atom, Quotient) and dict(atom.num) == num:
            return monomial
    return None


def simplify_reduction(engine: Engine, expr: Reduce) -> tir.PrimExpr:
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


def _has_effect(source: tir.PrimExpr) -> bool:
    return any(
        isinstance(node, tir.Call) and effect_of(node) > CallEffectKind.Pure
        for node in walk(source)
    )
