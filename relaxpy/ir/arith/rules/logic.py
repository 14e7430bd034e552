"""Conditions: comparisons decided, and in one canonical form."""

from __future__ import annotations

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.algebra.terms import Positive, Quotient, divisor
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import BOOL, DataType
from relaxpy.ir.tir import expr as tir, ops


def _truth(value: bool) -> tir.PrimExpr:
    return tir.IntImm(BOOL, int(value))


def simplify(engine: Engine, expr: tir.PrimExpr) -> tir.PrimExpr:
    """A Boolean expression in canonical form, decided where it can be."""
    simple = _simplify(engine, expr)
    assumed = engine.facts.truths.get(simple)
    return simple if assumed is None else _truth(assumed)


def _simplify(engine: Engine, expr: tir.PrimExpr) -> tir.PrimExpr:
    match expr:
        case tir.Var():
            value = engine.facts.values.get(expr)
            return expr if value is None else engine.simplify(value)
        case tir.CmpExpr():
            return comparison(engine, expr)
        case tir.Junction():
            return engine.junction(expr)
        case tir.Not(a=a):
            return negation(engine, engine.simplify(a))
        case tir.Select(condition=c, true_value=a, false_value=b):
            test, p, q = map(engine.simplify, (c, a, b))
            if isinstance(test, tir.IntImm):
                return p if test.value else q
            return p if p is q else tir.Select(test, p, q)
        case tir.Let():
            return engine.let(expr)
        case tir.Call(args=(a,)) if getattr(expr.op, "name", "") == "tir.likely":
            operand = engine.simplify(a)
            return operand if isinstance(operand, tir.IntImm) else engine.over_simple_operands(expr)
        case _:
            return engine.over_simple_operands(expr)


def negation(engine: Engine, expr: tir.PrimExpr) -> tir.PrimExpr:
    """not `expr`, which is simplified, pushed inside."""
    match expr:
        case tir.IntImm(value=value):
            return _truth(not value)
        case tir.Not(a=a):
            return a
        case tir.Junction():  # a simplified junction stays so when its operands are negated
            kind = type(expr)
            negated = [negation(engine, operand) for operand in folding.operands(expr, kind)]
            return ops.all_of(*negated) if kind is tir.Or else ops.any_of(*negated)
        case tir.EQ(a=a, b=b):
            return tir.NE(a, b)
        case tir.NE(a=a, b=b):
            return tir.EQ(a, b)
        case tir.CmpExpr(a=a, b=b) if a.dtype.is_int:
            opposite = {tir.LT: tir.LE, tir.LE: tir.LT, tir.GT: tir.GE, tir.GE: tir.GT}
            return engine.simplify(opposite[type(expr)](b, a))
        case _:
            return tir.Not(expr)


def below_zero(engine: Engine, expr: tir.CmpExpr) -> Poly | None:
    """The polynomial that is below 0 exactly where an ordering of signed integers holds."""
    if expr.a.dtype.family != "int" or expr.a.dtype.lanes != 1:
        return None
    p, q = engine.exact(expr.a), engine.exact(expr.b)
    match expr:
        case tir.LT():
            return poly.add(p, q, -1)
        case tir.LE():
            return poly.add(poly.add(p, q, -1), poly.constant(-1))
        case tir.GT():
            return poly.add(q, p, -1)
        case tir.GE():
            return poly.add(poly.add(q, p, -1), poly.constant(-1))
        case _:
            return None


def comparison(engine: Engine, expr: tir.CmpExpr) -> tir.PrimExpr:
    """A comparison, decided or by < and <=, with variables on the left and constants on the right.

    Only those of signed integers move their terms; others keep their operands.
    """
    if expr.a.dtype.family == "int" and expr.a.dtype.lanes == 1:
        p = below_zero(engine, expr)
        if p is not None:
            return _ordering(engine, p, expr)
        difference = poly.add(engine.exact(expr.a), engine.exact(expr.b), -1)
        return _equation(engine, difference, expr)
    return _over_operands(engine, expr)


def _over_operands(engine: Engine, expr: tir.CmpExpr) -> tir.PrimExpr:
    """A comparison decided by its operands, or of them simplified."""
    kind = type(expr)
    a, b = engine.simplify(expr.a), engine.simplify(expr.b)
    if expr.a.dtype.is_int and expr.a.dtype.lanes == 1:
        decided = _by_intervals(engine, kind, a, b)
        if decided is not None:
            return _truth(decided)
    if kind in (tir.GT, tir.GE):
        return ops.compare(tir.LT if kind is tir.GT else tir.LE, b, a)
    return ops.compare(kind, a, b)


def _by_intervals(
    engine: Engine, kind: type[tir.CmpExpr], a: tir.PrimExpr, b: tir.PrimExpr
) -> bool | None:
    """The answer where the intervals of the operands, or their being one, give it."""
    if a is b:
        return kind in (tir.EQ, tir.LE, tir.GE)
    (low, high), (least, greatest) = engine.bound(a), engine.bound(b)
    if kind in (tir.GT, tir.GE):
        low, high, least, greatest = least, greatest, low, high
        kind = tir.LT if kind is tir.GT else tir.LE
    if kind is tir.LT:
        return True if high < least else False if low >= greatest else None
    if kind is tir.LE:
        return True if high <= least else False if low > greatest else None
    if high < least or greatest < low:
        return kind is tir.NE
    return None


def _equation(engine: Engine, p: Poly, expr: tir.CmpExpr) -> tir.PrimExpr:
    equal = isinstance(expr, tir.EQ)
    if not p:
        return _truth(equal)
    if engine.is_nonzero(p):
        return _truth(not equal)
    p = poly.divide_exactly(p, poly.content(p))
    factors = _factors(engine, p, expr.a.dtype)
    if factors:
        comparisons = [engine.simplify(type(expr)(f, ops.const(0, f.dtype))) for f in factors]
        return (ops.any_of if equal else ops.all_of)(*comparisons)
    if poly.leading(p)[1] < 0:
        p = poly.scaled(p, -1)
    left, right, number = _sides(p)
    if not left:
        left, right, number = right, left, -number
    to_right = number > 0 or not right
    poly.accumulate(right if to_right else left, poly.constant(number), 1 if to_right else -1)
    return _written(engine, type(expr), left, right, expr)


def _factors(engine: Engine, p: Poly, dtype: DataType) -> list[tir.PrimExpr]:
    """The factors of a product of several, each once; none for anything else."""
    if len(p) != 1:
        return []
    [monomial] = p
    if len(monomial) < 2:
        return []
    atoms = map(poly.atom, dict.fromkeys(monomial))
    factors = [engine.written(p, dtype, exact=True) for p in atoms]
    fitting = [f for f in factors if f is not None]
    return fitting if len(fitting) == len(factors) else []


def _sides(p: Poly) -> tuple[dict[poly.Monomial, int], dict[poly.Monomial, int], int]:
    """(left, right, number) where p = left - right - number, with positive coefficients."""
    left: dict[poly.Monomial, int] = {}
    right: dict[poly.Monomial, int] = {}
    number = 0
    for term in terms.grouped(p):
        if isinstance(term, terms.Product) and not term.monomial:
            number = -term.coefficient
            continue
        side, sign = (left, 1) if term.coefficient > 0 else (right, -1)
        poly.accumulate(side, term.unit, sign * term.coefficient)
    return left, right, number


def _written(
    engine: Engine, kind: type[tir.CmpExpr], left: Poly, right: Poly, expr: tir.CmpExpr
) -> tir.PrimExpr:
    """The comparison of two sides; `expr` unchanged where a literal outgrows the datatype."""
    sides = [
        engine.written({m: c for m, c in side.items() if c}, expr.a.dtype, exact=True)
        for side in (left, right)
    ]
    if sides[0] is not None and sides[1] is not None:
        return kind(sides[0], sides[1])
    has_data = engine.has_data(left) or engine.has_data(right)
    return _over_operands(engine, expr) if has_data else expr


def _ordering(engine: Engine, p: Poly, expr: tir.CmpExpr) -> tir.PrimExpr:
    decided = engine.is_negative(p)
    if decided is not None:
        return _truth(decided)
    p = _tightened(engine, p)
    number = poly.constant_of(p)
    if number is not None:
        return _truth(number < 0)
    if _is_remainder_of_zero(p):
        return _equation(engine, poly.add(p, poly.constant(1)), tir.EQ(expr.a, expr.b))
    left, right, number = _sides(p)
    # left < right + number, over integers left <= right + number - 1.
    loose = isinstance(expr, (tir.LE, tir.GE)) if not (left and right) else number == 1
    kind = tir.LE if loose else tir.LT
    number -= loose
    to_right = bool(left) and (not right or number > 0)
    poly.accumulate(right if to_right else left, poly.constant(number), 1 if to_right else -1)
    return _written(engine, kind, left, right, expr)


def _is_remainder_of_zero(p: Poly) -> bool:
    """True if p < 0 implies that a remainder by a literal, which is at least 0, is 0."""
    if p.get(ONE, 0) != -1 or terms.has_only_leaves(p):
        return False
    match terms.remainders({m: c for m, c in p.items() if m}):
        case [terms.Remainder(coefficient=1, modulus=modulus)]:
            return modulus is not None
        case _:
            return False


def _tightened(engine: Engine, p: Poly) -> Poly:
    """A simpler polynomial that is below 0 for the same values.

    Rule:
        g*p + k < 0 where p + k // g < 0; a single quotient is compared through its dividend; terms
        that p // g no longer has do not matter.
    """
    while True:
        common = poly.content(p, with_constant=False)
        if common > 1:
            p = engine.floor_by(p, common)
        reduced = _by_dividend(p)
        if reduced is None and not terms.has_only_leaves(p):
            reduced = _without_extremum(engine, p)
        if reduced is not None:
            p = reduced
            continue
        smaller = _without_small_terms(engine, p)
        if smaller is None:
            return p
        p = smaller


def _by_dividend(p: Poly) -> Poly | None:
    """A single quotient, less a literal, below 0: its dividend compared with a literal.

    Rule:
        n // c <= k where n < (k + 1)*c. Toward zero so for k >= 0, and n <= k*c for k < 0.
    """
    number = p.get(ONE, 0)
    match [(m, c) for m, c in p.items() if m]:
        case [((Quotient(floor=False) as atom,), 1 | -1 as sign)] if divisor(atom) is not None:
            by = divisor(atom) or 1
            # Where the sign is negative, k <= -(n / c) = (-n) / c.
            num = poly.scaled(dict(atom.num), sign)
            most = -number - 1
            limit = (most + 1) * by if most >= 0 else most * by + 1
            return poly.add(num, poly.constant(-limit))
        case [((Quotient(floor=True) as atom,), 1 | -1 as sign)] if divisor(atom) is not None:
            by = divisor(atom) or 1
            num = dict(atom.num)
            if sign == 1:
                return poly.add(num, poly.constant(number * by))
            return poly.add(poly.constant((number + 1) * by - 1), num, -1)
        case _:
            return None


def _without_extremum(engine: Engine, p: Poly) -> Poly | None:
    """p with one of the operands for an extremum, where the other cannot decide whether p < 0."""
    for monomial, factor in p.items():
        if len(monomial) != 1 or not isinstance(monomial[0], Positive):
            continue
        without: Poly = {m: c for m, c in p.items() if m != monomial}
        raised = poly.add(without, dict(monomial[0].inner), factor)
        # A maximum is below 0 where both are, a minimum where either is.
        needed = factor > 0
        for side, kept in ((without, raised), (raised, without)):
            if engine.is_negative(side) is needed:
                return kept
    return None


def _without_small_terms(engine: Engine, p: Poly) -> Poly | None:
    sizes = {abs(c) for m, c in p.items() if m and abs(c) > 1}
    for size in sorted(sizes, reverse=True):
        result = engine.floor_by(p, size)
        if len(result) < len(p) and set(result) <= {*p, ONE}:
            return result
    return None
