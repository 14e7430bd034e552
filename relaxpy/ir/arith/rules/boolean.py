"""Conjunctions and disjunctions, and the facts that follow from conditions assumed to hold."""

from __future__ import annotations

from math import gcd

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.engine import AND_OF_ORS, BRANCHES, Engine, Facts
from relaxpy.ir.core.dtype import BOOL, INT64, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import mentions

_FALSE, _TRUE = ops.const(False, BOOL), ops.const(True, BOOL)
_LIMIT = 64


def simplify(engine: Engine, expr: tir.Junction) -> tir.PrimExpr:
    """A conjunction or a disjunction of two conditions.

    Extensions: the second operand is simplified under the first, and the first under the second; a
    disjunction of conjunctions becomes a conjunction of disjunctions. An operand that may fail, and
    is not evaluated where the first decides, changes nothing in operands before it.
    """
    conjunction = not isinstance(expr, tir.Or)
    join = both if conjunction else either
    p, q = engine.simplify(expr.a), engine.simplify(expr.b)
    if engine.facts.extensions & BRANCHES:
        q = _under(engine, q, p, conjunction=conjunction)
        if folding.is_safe(q):
            p = _under(engine, p, q, conjunction=conjunction)
    if conjunction or not engine.facts.extensions & AND_OF_ORS or not folding.is_safe(p):
        return join(engine, p, q)
    result: tir.PrimExpr = _TRUE
    for left in folding.operands(p, tir.And):
        for right in folding.operands(q, tir.And):
            result = both(engine, result, either(engine, left, right))
    return result


def _under(
    engine: Engine, expr: tir.PrimExpr, other: tir.PrimExpr, *, conjunction: bool
) -> tir.PrimExpr:
    """The operands of `expr` simplified where `other` does not decide the junction."""
    assumed = engine.where(other if conjunction else engine.negation(other), expr)
    kind = tir.And if conjunction else tir.Or
    operands = [assumed.simplify(operand) for operand in folding.operands(expr, kind)]
    return (ops.all_of if conjunction else ops.any_of)(*operands)


def both(engine: Engine, a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
    """a and b, which are simplified, without operands that follow from others."""
    *first, last = folding.operands(a, tir.And)
    result = conjoined(engine, first, [last, *folding.operands(b, tir.And)])
    return _FALSE if result is None else ops.all_of(*result) if result else _TRUE


def either(engine: Engine, a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
    """a or b, which are simplified, without operands that imply others."""
    disjuncts = [*folding.operands(a, tir.Or), *folding.operands(b, tir.Or)]
    negated = [engine.negation(disjunct) for disjunct in disjuncts]
    opposite = dict(zip(negated, disjuncts, strict=True))
    count = len(disjuncts) - len(folding.operands(b, tir.Or)) - 1
    conjuncts = conjoined(engine, negated[:count], negated[count:])
    if conjuncts is None:
        return _TRUE
    remaining = [opposite.get(disjunct, engine.negation(disjunct)) for disjunct in conjuncts]
    return ops.any_of(*remaining) if remaining else _FALSE


def conjoined(
    engine: Engine, simplified: list[tir.PrimExpr], added: list[tir.PrimExpr]
) -> list[tir.PrimExpr] | None:
    """The shortest conjunction of the simplified `simplified` and `added`; None if it is false.

    An operand may keep later ones from failing, as by a division by zero: it is neither dropped for
    a later one nor moved after it.
    """
    conjuncts = list(simplified)
    waiting = added[::-1]
    size = len(simplified) + len(added)
    for _ in range(_LIMIT + size * size):
        if not waiting:
            break
        condition = waiting.pop()
        if isinstance(condition, tir.IntImm):
            if not condition.value:
                return _false_after(conjuncts)
            continue
        for position, other in enumerate(conjuncts):
            combined = _pair(engine, other, condition)
            if combined is None:
                continue
            if _FALSE in combined:
                return _false_after(conjuncts)
            if combined == [other]:
                break
            if not folding.is_safe(condition):
                continue
            waiting += [*combined, *conjuncts[position + 1 :]][::-1]
            del conjuncts[position:]
            break
        else:
            conjuncts.append(condition)
    return [*conjuncts, *waiting[::-1]]


def _false_after(conjuncts: list[tir.PrimExpr]) -> list[tir.PrimExpr] | None:
    """A false conjunction, which still evaluates the conjuncts if one of them may fail."""
    return None if all(map(folding.is_safe, conjuncts)) else [*conjuncts, _FALSE]


def _pair(engine: Engine, a: tir.PrimExpr, b: tir.PrimExpr) -> list[tir.PrimExpr] | None:
    """Simpler conditions that hold where both do; None where there are none."""
    if a is b:
        return [a]
    if folding.are_opposite(a, b):
        return [_FALSE]
    if not (isinstance(a, tir.CmpExpr) and isinstance(b, tir.CmpExpr)):
        return None
    if a.a.dtype.family != "int" or b.a.dtype.family != "int" or a.a.dtype.vector:
        return None
    try:
        return _compared(engine, a, b)
    except terms.OutOfRangeError:
        return None


def _compared(engine: Engine, a: tir.CmpExpr, b: tir.CmpExpr) -> list[tir.PrimExpr] | None:
    p, q = engine.below_zero(a), engine.below_zero(b)
    if p is not None and q is not None:
        return _orderings(engine, (a, p), (b, q))
    if p is None and q is None:
        return _equations(engine, a, b) or _digits(engine, a, b) or _digits(engine, b, a)
    if q is not None:
        result = _ordered_equation(engine, a, (b, q))
    else:
        assert p is not None
        result = _ordered_equation(engine, b, (a, p))
    return result or _digits(engine, a, b) or _digits(engine, b, a)


def _orderings(
    engine: Engine, first: tuple[tir.CmpExpr, Poly], second: tuple[tir.CmpExpr, Poly]
) -> list[tir.PrimExpr] | None:
    (a, p), (b, q) = first, second
    total = poly.add(p, q)
    if engine.bound_of_poly(total)[0] > -2:
        return [_FALSE]
    if engine.bound_of_poly(poly.add(q, p, -1))[1] <= 0:
        return [a]
    if engine.bound_of_poly(poly.add(p, q, -1))[1] <= 0:
        return [b]
    number = poly.constant_of(total)
    if number is not None and number < -1:
        dtype = a.a.dtype
        return _single(engine, p, number, dtype) or _quotient(engine, p, q, number, dtype)
    return _cut(engine, first, second) or _cut(engine, second, first)


def _single(engine: Engine, p: Poly, total: int, dtype: DataType) -> list[tir.PrimExpr] | None:
    """p <= -1 and -p <= 1 leave p == -1."""
    return [_equation(engine, poly.add(p, poly.constant(1)), dtype)] if total == -2 else None


def _quotient(
    engine: Engine, p: Poly, q: Poly, total: int, dtype: DataType
) -> list[tir.PrimExpr] | None:
    """c*v <= n and n < c*v + c imply that v is n // c."""
    by = -total - 1
    for lower in (p, q):
        for monomial, factor in lower.items():
            var = monomial[0] if len(monomial) == 1 else None
            if factor != by or not isinstance(var, tir.Var):
                continue
            addend = {m: c for m, c in lower.items() if m != monomial}
            if any(mentions(f, (var,)) for monomial in addend for f in monomial):
                continue
            # lower: c*v - n - 1 < 0
            num = poly.add(poly.scaled(addend, -1), poly.constant(-1))
            value = engine.written(num, dtype, exact=True)
            if value is not None:
                return [engine.simplify(tir.EQ(ops.cast_to(var, dtype), ops.floordiv(value, by)))]
    return None


def _cut(
    engine: Engine, ordering: tuple[tir.CmpExpr, Poly], remainder_limit: tuple[tir.CmpExpr, Poly]
) -> list[tir.PrimExpr] | None:
    """n < k and n % c < m: the largest n below k with such a remainder is a tighter bound."""
    (a, p), (b, q) = ordering, remainder_limit
    remainder = _remainder(q)
    if remainder is None or remainder.coefficient != 1:
        return None
    constant = poly.add(p, remainder.num, -1)
    number, limit = poly.constant_of(constant), _limit(q, remainder)
    by = remainder.modulus
    if number is None or limit is None or by is None:
        return None
    greatest = -number - 1
    if greatest % by < limit:
        return None
    sharper = greatest // by * by + limit - 1
    below = poly.add(remainder.num, poly.constant(-sharper - 1))
    return [_ordering(engine, below, a.a.dtype), b]


def _remainder(p: Poly) -> terms.Remainder | None:
    """The remainder by a literal in p, if its only other term is a constant."""
    groups = terms.remainders(p)
    remainders = [g for g in groups if isinstance(g, terms.Remainder)]
    if len(remainders) != 1 or remainders[0].modulus is None or abs(remainders[0].coefficient) != 1:
        return None
    return remainders[0] if _limit(p, remainders[0]) is not None else None


def _limit(p: Poly, remainder: terms.Remainder) -> int | None:
    """k where p is the remainder (with its sign) less k."""
    constant = poly.constant_of(poly.add(p, remainder.unit, -remainder.coefficient))
    return None if constant is None else -constant


def _digits(engine: Engine, a: tir.CmpExpr, b: tir.CmpExpr) -> list[tir.PrimExpr] | None:
    """n // c == k and a comparison of n % c with a literal: one of n itself."""
    if not isinstance(a, tir.EQ):
        return None
    equation = _known_quotient(_difference(engine, a))
    if equation is None:
        return None
    num, by, k = equation
    p = engine.below_zero(b)
    q = _difference(engine, b) if p is None else p
    group = _remainder(q)
    if group is None or group.modulus != by or group.num != num:
        return None
    limit, dtype = _limit(q, group), a.a.dtype
    assert limit is not None
    begin = poly.add(num, poly.constant(-k * by))
    if p is None:
        digit = limit * group.coefficient
        if not isinstance(b, tir.EQ) or not 0 <= digit < by:
            return None
        return [_equation(engine, poly.add(begin, poly.constant(-digit)), dtype)]
    # n % c < limit, or -(n % c) < limit: n from c*k + first on, and below c*k + beyond.
    up = group.coefficient == 1
    first, stop = (0, min(limit, by)) if up else (max(1 - limit, 0), by)
    loose = isinstance(b, (tir.LE, tir.GE))
    low = poly.add(poly.constant(first), begin, -1)
    high = poly.add(begin, poly.constant(-stop))
    return [
        _ordering(engine, poly.add(low, poly.constant(-1)), dtype, loose=up or loose),
        _ordering(engine, high, dtype, loose=up and loose),
    ]


def _known_quotient(p: Poly) -> tuple[Poly, int, int] | None:
    """(n, c, k) where p == 0 implies that n // c is k."""
    number = p.get(ONE, 0)
    match [(m, c) for m, c in p.items() if m]:
        case [((terms.Quotient(floor=True) as atom,), 1 | -1 as sign)] if (
            terms.divisor(atom) is not None
        ):
            return dict(atom.num), terms.divisor(atom) or 1, -number * sign
        case _:
            return None


def _difference(engine: Engine, expr: tir.CmpExpr) -> Poly:
    return poly.add(engine.exact(expr.a), engine.exact(expr.b), -1)


def _equations(engine: Engine, a: tir.CmpExpr, b: tir.CmpExpr) -> list[tir.PrimExpr] | None:
    p, q = _difference(engine, a), _difference(engine, b)
    if isinstance(a, tir.NE) and isinstance(b, tir.NE):
        return [a] if p == q or p == poly.scaled(q, -1) else None
    if isinstance(a, tir.NE):
        a, b, p, q = b, a, q, p
    # p is 0, so q is q - p and q + p as well.
    for sign in (-1, 1):
        other = poly.add(q, p, sign)
        if not other:
            return [a if isinstance(b, tir.EQ) else _FALSE]
        if engine.is_nonzero(other):
            return [_FALSE if isinstance(b, tir.EQ) else a]
    return None


def _ordered_equation(
    engine: Engine, equation: tir.CmpExpr, other: tuple[tir.CmpExpr, Poly]
) -> list[tir.PrimExpr] | None:
    """An equation with an ordering that it decides; an inequation that excludes one end."""
    p, (ordering, q) = _difference(engine, equation), other
    for sign in (-1, 1):
        shifted = poly.add(q, p, sign)
        if isinstance(equation, tir.EQ):
            decided = engine.is_negative(shifted)
            if decided is not None:
                return [equation] if decided else [_FALSE]
        elif poly.constant_of(shifted) is not None:
            # q = known -+ p, and p is not 0: where q may be -1 only for p = 0, q is less.
            number = poly.constant_of(shifted) or 0
            if number == -1:
                return [_ordering(engine, poly.add(q, poly.constant(1)), ordering.a.dtype)]
            if number >= 0:
                return [ordering]
    return None


def _equation(engine: Engine, p: Poly, dtype: DataType) -> tir.PrimExpr:
    return _written(engine, tir.EQ, p, dtype)


def _ordering(engine: Engine, p: Poly, dtype: DataType, *, loose: bool = False) -> tir.PrimExpr:
    """p < 0, or (`loose`) the same as p + 1 <= 0."""
    if loose:
        return _written(engine, tir.LE, poly.add(p, poly.constant(1)), dtype)
    return _written(engine, tir.LT, p, dtype)


def _written(engine: Engine, kind: type[tir.CmpExpr], p: Poly, dtype: DataType) -> tir.PrimExpr:
    """p compared with 0, simplified."""
    for candidate in (dtype, INT64):
        difference = engine.written(p, candidate, exact=True)
        if difference is not None:
            return engine.simplify(kind(difference, ops.const(0, candidate)))
    raise terms.OutOfRangeError


def assume(engine: Engine, facts: Facts, condition: tir.PrimExpr) -> Facts:
    """Add to `facts` those that follow where `condition` holds."""
    for conjunct in folding.operands(condition, tir.And):
        for simple in folding.operands(engine.simplify(conjunct), tir.And):
            facts = _assume_conjunct(engine, facts, simple)
    return facts


def _assume_conjunct(engine: Engine, facts: Facts, simple: tir.PrimExpr) -> Facts:
    """Add to `facts` those that follow from a simplified condition that is not a conjunction."""
    if isinstance(simple, tir.IntImm):
        return facts
    facts = facts.with_truth(simple, True).with_truth(engine.negation(simple), False)
    if isinstance(simple, tir.EQ) and simple.a.dtype.family == "int":
        p = poly.add(engine.exact(simple.a), engine.exact(simple.b), -1)
        facts = _assume_residue(_assume_congruence(facts, p), p)
        facts = _assume_negative(facts, poly.add(p, poly.constant(-1)))
        return _assume_negative(facts, poly.add(poly.scaled(p, -1), poly.constant(-1)))
    if isinstance(simple, tir.CmpExpr):
        below = engine.below_zero(simple)
        return facts if below is None else _assume_negative(facts, below)
    return facts


def _assume_negative(facts: Facts, p: Poly) -> Facts:
    """Add p < 0 to `facts`: as a bound, where p has one atom."""
    number = p.get(ONE, 0)
    match [(m, c) for m, c in p.items() if m]:
        case [((atom,), coefficient)]:
            if coefficient > 0:
                return facts.with_bound(atom, (-float("inf"), (-number - 1) // coefficient))
            return facts.with_bound(atom, (number // -coefficient + 1, float("inf")))
        case _:
            return facts.with_negative(p)


def _assume_congruence(facts: Facts, p: Poly) -> Facts:
    """Add p == 0 to `facts`, where p is an atom less multiples of a number: its residue.

    So are the truncated remainder of x by 4, which is x - 4 * truncdiv(x, 4), and x - 4 * y.
    """
    number = p.get(ONE, 0)
    terms_of = {m: c for m, c in p.items() if m}
    units = [m for m, c in terms_of.items() if len(m) == 1 and abs(c) == 1]
    if len(units) != 1 or len(terms_of) == 1:
        return facts
    [unit] = units
    modulus = gcd(*(c for m, c in terms_of.items() if m != unit))
    if modulus == 1:
        return facts
    return facts.with_residue(unit[0], (modulus, -number * terms_of[unit] % modulus))


def _assume_residue(facts: Facts, p: Poly) -> Facts:
    """Add p == 0 to `facts`, where p is a remainder less a constant: a residue of its dividend."""
    groups = [g for g in terms.remainders(p) if isinstance(g, terms.Remainder)]
    number = -p.get(ONE, 0)
    if len(groups) != 1 or groups[0].modulus is None:
        return facts
    group = groups[0]
    value = poly.constant_of(poly.add(p, group.unit, -group.coefficient))
    if value is None or value % group.coefficient:
        return facts
    number = -value // group.coefficient
    match [(m, c) for m, c in group.num.items() if m]:
        case [((atom,), 1)]:
            modulus = group.modulus or 1
            return facts.with_residue(atom, (modulus, (number - group.num.get(ONE, 0)) % modulus))
        case _:
            return facts
