"""Intervals and residue classes of expressions and polynomials, and the signs of polynomials."""

from __future__ import annotations

from collections import Counter
from functools import partial, reduce
from math import gcd, inf

from relaxpy.ir.arith.algebra import folding, interval, poly, residue, terms
from relaxpy.ir.arith.algebra.interval import EVERYTHING, Interval
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.arith.algebra.terms import Positive, Quotient, divisor
from relaxpy.ir.arith.engine import TRANSITIVE, Engine
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.tir import expr as tir, ops


def of_poly(engine: Engine, p: Poly) -> Interval:
    """An interval that contains all values of p, term by term."""
    if not engine.facts.bounds and _hopeless(p):
        return EVERYTHING
    result = _by_terms(engine, p)
    if 1 < len(p) < 5 and engine.facts.bounds:
        result = _by_corners(engine, p, result)
    return result


def _by_corners(engine: Engine, p: Poly, known: Interval) -> Interval:
    """`known`, met with an interval that contains k*a*b + l*a + m*b + n: by its values at corners.

    Rule:
        For a fixed `a` this is linear in `b`, and the other way round.
    """
    products = [m for m in p if len(m) > 1]
    if len(products) != 1 or len(products[0]) != 2 or products[0][0] is products[0][1]:
        return known
    a_atom, b_atom = products[0]
    if not all(m in ((), (a_atom,), (b_atom,), products[0]) for m in p):
        return known
    sides = of_atom(engine, a_atom), of_atom(engine, b_atom)
    if abs(sides[0][0]) == inf or abs(sides[0][1]) == inf:
        a_atom, b_atom, sides = b_atom, a_atom, sides[::-1]
        if abs(sides[0][0]) == inf or abs(sides[0][1]) == inf:
            return known
    values = []
    for a in sides[0]:  # which are integers
        slope = p[products[0]] * a + p.get((b_atom,), 0)
        start = p.get((a_atom,), 0) * a + p.get((), 0)
        values += [interval.plus(start, interval.times(slope, b)) for b in sides[1]]
    return interval.meet(known, (min(values), max(values)))


def by_cases(engine: Engine, p: Poly) -> Interval:
    """An interval that contains p, by the cases 0 and d of its term max(d, 0), if there is one."""
    result = of_poly(engine, p)
    if terms.has_only_leaves(p):
        return result
    positive = [m for m in p if any(isinstance(factor, Positive) for factor in m)]
    if len(positive) != 1 or len(positive[0]) != 1 or result[0] == result[1]:
        return result
    [monomial] = positive
    rest = {m: c for m, c in p.items() if m != monomial}
    [atom] = monomial
    assert isinstance(atom, Positive)
    raised = poly.add(rest, dict(atom.inner), p[monomial])
    return interval.meet(result, interval.join(of_poly(engine, rest), of_poly(engine, raised)))


def is_exact(engine: Engine, p: Poly, dtype: DataType) -> bool:
    """True if an expression of p in the signed `dtype` has the value of p, without wrapping.

    Rule:
        Sums of loop variables and sizes are assumed to; sums of data do where bounds show it.
    """
    return not engine.has_data(p) or _stays_inside(engine, p, dtype)


def data_may_wrap(engine: Engine, expr: tir.PrimExpr) -> bool:
    """True if an integer is computed from data, and may overflow: operands may wrap before that."""
    if not engine.holds_data(expr):
        return False
    if expr.dtype.family == "uint":
        return True
    return not _stays_inside(engine, engine.poly(expr), expr.dtype)


def _stays_inside(engine: Engine, p: Poly, dtype: DataType) -> bool:
    """True if all values of p are known to lie in the range of the signed `dtype`."""
    if len(p) == 1:
        [(monomial, factor)] = p.items()
        is_atom = factor == 1 and len(monomial) == 1
        is_expr = is_atom and not isinstance(monomial[0], (Quotient, Positive))
        if is_expr and monomial[0].dtype.bits <= dtype.bits:
            return True
    least, greatest = ops.int_range(dtype)
    low, high = by_cases(engine, p)
    if not engine.facts.negative:
        return least <= low and high <= greatest
    above, below = poly.constant(-least), poly.constant(greatest)
    return (low >= least or is_negative(engine, poly.add(p, above)) is False) and (
        high <= greatest or is_negative(engine, poly.add(below, p, -1)) is False
    )


def fits(engine: Engine, p: Poly, dtype: DataType) -> bool:
    """True if p and the operands of its atoms, at every depth, lie in the range of `dtype`."""
    least, greatest = ops.int_range(dtype)
    low, high = by_cases(engine, p)
    if low < least or greatest < high:
        return False
    return all(_atom_fits(engine, factor, dtype) for monomial in p for factor in monomial)


def _atom_fits(engine: Engine, atom: tir.PrimExpr, dtype: DataType) -> bool:
    match atom:
        case Quotient(num=num, den=den):
            return fits(engine, dict(num), dtype) and fits(engine, dict(den), dtype)
        case Positive(inner=inner):
            return fits(engine, dict(inner), dtype)
        case _:
            (least, greatest), (low, high) = ops.int_range(dtype), of_atom(engine, atom)
            return atom.dtype.bits <= dtype.bits or (least <= low and high <= greatest)


def _by_terms(engine: Engine, p: Poly) -> Interval:
    total: Interval = (0, 0)
    for term in terms.grouped(p):
        bound = interval.scale(_of_term(engine, term), term.coefficient)
        total = interval.add(total, bound)
        if bound == EVERYTHING:
            return EVERYTHING
    return total


def _hopeless(p: Poly) -> bool:
    """True if p is unbounded because a variable is: the usual case of a symbolic dimension."""
    free = False
    for monomial in p:
        if len(monomial) > 1 or (monomial and not isinstance(monomial[0], tir.Var)):
            return False
        free = free or (
            bool(monomial) and type(monomial[0]) is tir.Var and monomial[0].dtype == INT64
        )
    return free


def _of_term(engine: Engine, term: terms.Term) -> Interval:
    match term:
        case terms.Product(monomial=monomial):
            return _of_product(engine, monomial)
        case terms.Extremum(kind=kind, a=a, b=b):
            return _extreme(kind, of_poly(engine, a), of_poly(engine, b))
        case terms.Remainder(cofactor=cofactor, num=num, den=den, floor=floor):
            bound = interval.remainder(of_poly(engine, num), of_poly(engine, den), floor=floor)
            if term.modulus is not None and engine.facts.residues:
                bound = interval.meet(bound, _of_remainder(engine, num, term.modulus))
            return interval.multiply(_of_product(engine, cofactor), bound)


def _of_remainder(engine: Engine, num: Poly, modulus: int) -> Interval:
    """The remainders that the residue class of the dividend has."""
    coeff, base = engine.residue_of_poly(num)
    common = gcd(coeff, modulus)
    return base % common, modulus - common + base % common


def _of_product(engine: Engine, monomial: Monomial) -> Interval:
    if len(monomial) == 1:
        return of_atom(engine, monomial[0])
    result: Interval = (1, 1)
    for factor, power in Counter(monomial).items():
        result = interval.multiply(result, interval.raised(of_atom(engine, factor), power))
    return result


def _extreme(kind: type[tir.PrimExpr], a: Interval, b: Interval) -> Interval:
    if kind is tir.Max:
        return max(a[0], b[0]), max(a[1], b[1])
    return min(a[0], b[0]), min(a[1], b[1])


def of_atom(engine: Engine, atom: tir.PrimExpr) -> Interval:
    """An interval that contains an atom: by the facts, and by its kind."""
    result = engine.atom_bounds.get(atom)
    if result is None:
        result = engine.remember(engine.atom_bounds, atom, lambda atom: _of_atom(engine, atom))
    return result


def _of_atom(engine: Engine, atom: tir.PrimExpr) -> Interval:
    known = engine.facts.bounds.get(atom)
    match atom:
        case tir.SizeVar():
            result: Interval = (0, interval.of_dtype(atom.dtype)[1])
        case tir.Var():
            of_dtype = ops.int_range if atom in engine.facts.data else interval.of_dtype
            result = of_dtype(atom.dtype)
        case Quotient(num=num, den=den, floor=floor):
            operands = of_poly(engine, dict(num)), of_poly(engine, dict(den))
            result = interval.divide(*operands, floor=floor)
        case Positive(inner=inner):
            low, high = of_poly(engine, dict(inner))
            result = max(low, 0), max(high, 0)
        case _:
            result = _of_node(engine, atom)
    return result if known is None else interval.meet(known, result)


def of_expr(engine: Engine, expr: tir.PrimExpr) -> Interval:
    """An interval that contains an expression: by its operands, and by its canonical form."""
    if isinstance(expr, tir.Var):
        value = engine.facts.values.get(expr)
        return of_atom(engine, expr) if value is None else engine.bound(value)
    result = _of_node(engine, expr)
    if expr.dtype.family == "int" and expr.dtype.lanes == 1:
        return interval.meet(result, by_cases(engine, engine.exact(expr)))
    return result


def _of_node(engine: Engine, expr: tir.PrimExpr) -> Interval:
    """Bounds from those of the operands; the range of the datatype if the value may wrap."""
    if not expr.dtype.is_int:
        return EVERYTHING
    wraps = expr.dtype.family == "uint" or engine.holds_data(expr)
    every = ops.int_range(expr.dtype)
    result = _of_operands(engine, expr, every if wraps else interval.of_dtype(expr.dtype))
    is_value = result[0] == result[1]  # then literals overflow
    if (wraps or is_value) and not (every[0] <= result[0] and result[1] <= every[1]):
        return every
    return result


def _of_operands(engine: Engine, expr: tir.PrimExpr, of_dtype: Interval) -> Interval:
    bound = engine.bound
    match expr:
        case tir.IntImm(value=value):
            return value, value
        case tir.Add() | tir.Sub() if expr.dtype.family == "int":
            return _of_sum(engine, expr)
        case tir.Add(a=a, b=b):
            return interval.add(bound(a), bound(b))
        case tir.Sub(a=a, b=b):
            return interval.add(bound(a), interval.scale(bound(b), -1))
        case tir.Mul(a=a, b=b):
            return interval.multiply(bound(a), bound(b))
        case tir.FloorDiv(a=a, b=b) | tir.Div(a=a, b=b):
            return interval.divide(bound(a), bound(b), floor=isinstance(expr, tir.FloorDiv))
        case tir.FloorMod(a=a, b=b) | tir.Mod(a=a, b=b):
            return interval.remainder(bound(a), bound(b), floor=isinstance(expr, tir.FloorMod))
        case tir.Min() | tir.Max():
            operands = map(bound, folding.operands(expr, type(expr)))
            return reduce(partial(_extreme, type(expr)), operands)
        case tir.Select(condition=c, true_value=a, false_value=b):
            return _of_choice(engine, c, a, b)
        case tir.Cast(value=value) if value.dtype.is_int:
            source = bound(value)
            return source if of_dtype[0] <= source[0] and source[1] <= of_dtype[1] else of_dtype
        case tir.Ramp(base=base, stride=stride, lanes=lanes):
            steps = (lanes - 1, lanes - 1) if isinstance(lanes, int) else (0, inf)
            last = interval.add(bound(base), interval.multiply(bound(stride), steps))
            return interval.join(bound(base), last)
        case tir.Broadcast(value=value):
            return bound(value)
        case tir.Call(args=args):
            return _of_call(engine, getattr(expr.op, "name", ""), args, of_dtype)
        case _:
            return of_dtype


def _of_sum(engine: Engine, expr: tir.Add | tir.Sub) -> Interval:
    """An interval that contains a chain of sums, term by term."""
    total: Interval = (0, 0)
    for term, times in folding.terms(expr).items():
        total = interval.add(total, interval.scale(engine.bound(term), times))
    return total


def _of_choice(
    engine: Engine, condition: tir.PrimExpr, a: tir.PrimExpr, b: tir.PrimExpr
) -> Interval:
    """An interval that contains both values, each where it is chosen."""
    if condition.dtype.vector or (isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm)):
        return interval.join(engine.bound(a), engine.bound(b))
    test = engine.simplify(condition)
    if isinstance(test, tir.IntImm):
        return engine.bound(a if test.value else b)
    otherwise = engine.simplify(tir.Not(test))
    return interval.join(engine.where(test, a).bound(a), engine.where(otherwise, b).bound(b))


def _of_call(
    engine: Engine, name: str, args: tuple[tir.PrimExpr, ...], of_dtype: Interval
) -> Interval:
    match name, args:
        case "tir.if_then_else", (c, a, b):
            return _of_choice(engine, c, a, b)
        case "tir.bitwise_and", (a, b):
            masks = [high for low, high in (engine.bound(a), engine.bound(b)) if low >= 0]
            return (0, min(masks)) if masks else of_dtype
        case "tir.vscale", ():
            return 1, of_dtype[1]
        case "tir.shift_right", (a, by):
            least, greatest = engine.bound(by)
            if least < 0 or greatest >= a.dtype.bits:
                return of_dtype
            divisors = 1 << int(least), 1 << int(greatest)
            return interval.divide(engine.bound(a), divisors, floor=True)
        case "tir.shift_left", (a, by):
            least, greatest = engine.bound(by)
            if least < 0 or greatest >= a.dtype.bits:
                return of_dtype
            result = interval.multiply(engine.bound(a), (1 << int(least), 1 << int(greatest)))
            low, high = ops.int_range(a.dtype)
            return result if low <= result[0] and result[1] <= high else of_dtype
        case "tir.clz" | "tir.popcount", (a,):
            return 0, a.dtype.bits
        case _:
            return of_dtype


_SHORT, _LONG = 2, 5
"""The maximum length of a chain of inequalities, without and with the extension for chains."""


def is_negative(engine: Engine, p: Poly) -> bool | None:
    """True if p is always below 0, False if it never is, None if unknown.

    Rule:
        By its interval, also with remainders by a symbolic divisor at their maximum, or as some
        known negative polynomials plus a rest that its interval bounds by 0.
    """
    low, high = engine.bound_by_cases(p)
    if high < 0:
        return True
    if low >= 0:
        return False
    if _has_symbolic_divisor(p):
        if engine.bound_of_poly(_at_greatest(engine, p))[1] < 0:
            return True
        if engine.bound_of_poly(_at_greatest(engine, poly.scaled(p, -1)))[1] <= 0:
            return False
    if not engine.facts.negative:
        return None
    shared = poly.common_factor(p)
    if shared and engine.bound_of_poly({shared: 1})[0] > 0:
        return is_negative(engine, poly.without_factor(p, shared))
    steps = _LONG if engine.facts.extensions & TRANSITIVE else _SHORT
    if _follows(engine, p, steps):
        return True
    opposite = poly.add(poly.scaled(p, -1), poly.constant(-1))
    return False if _follows(engine, opposite, steps) else None


def _has_symbolic_divisor(p: Poly) -> bool:
    return any(
        isinstance(factor, Quotient) and divisor(factor) is None
        for monomial in p
        for factor in monomial
    )


def _at_greatest(engine: Engine, p: Poly) -> Poly:
    """p with d - 1 for each n % d that is added, and for -mod(n, d), which rounds toward zero.

    A divisor of at least 0 is positive, as a division by zero has no value (PX-3).
    """
    result = p
    for term in terms.remainders(p):
        if not isinstance(term, terms.Remainder) or term.cofactor:
            continue
        times = term.coefficient
        if (times < 0 and term.floor) or engine.bound_of_poly(term.den)[0] < 0:
            continue
        greatest = poly.scaled(poly.add(term.den, poly.constant(-1)), abs(times))
        result = poly.add(poly.add(result, term.unit, -times), greatest)
    return result


def _follows(engine: Engine, p: Poly, steps: int, slack: int = 0) -> bool:
    """True if p - slack < 0 follows from at most `steps` polynomials assumed to be negative.

    An inequality may mention expressions whose conditions it decides in turn, so the interval of
    the remaining terms does not use inequalities.
    """
    for inequality in engine.inequalities_with(p):
        remaining = poly.add(p, inequality, -1)
        if len(remaining) > len(p) + 1:
            continue
        # inequality <= -1, hence p <= remaining - 1.
        if engine.without_inequalities.bound_of_poly(remaining)[1] <= slack:
            return True
        if steps > 1 and _follows(engine, remaining, steps - 1, slack + 1):
            return True
    return False


def is_nonzero(engine: Engine, p: Poly) -> bool:
    """True if p is provably different from 0: by residue, by interval, or by known inequalities."""
    number = poly.constant_of(p)
    if number is not None:
        return number != 0
    if p.get(ONE, 0) % poly.content(p, with_constant=False):
        return True
    coeff, base = engine.residue_of_poly(p)
    if coeff != 1 and base != 0:
        return True
    low, high = engine.bound_of_poly(p)
    if low > 0 or high < 0:
        return True
    if not engine.facts.negative:
        return False
    return is_negative(engine, p) is True or is_negative(engine, poly.scaled(p, -1)) is True


def residue_of_poly(engine: Engine, p: Poly) -> Residue:
    """The class of a polynomial over integer atoms."""
    total: Residue = (0, 0)
    for monomial, coefficient in p.items():
        term: Residue = (0, coefficient)
        for factor in monomial:
            term = residue.multiply(term, residue_of_atom(engine, factor))
        total = residue.add(total, term)
        if total == residue.EVERYTHING:
            return residue.EVERYTHING
    return total


def residue_of_atom(engine: Engine, atom: tir.PrimExpr) -> Residue:
    """The class of an atom: by the facts, or by the values that it chooses from."""
    result = engine.facts.residues.get(atom) or engine.atom_residues.get(atom)
    if result is None:
        result = engine.remember(
            engine.atom_residues, atom, lambda atom: _residue_of_atom(engine, atom)
        )
    return result


def _residue_of_atom(engine: Engine, atom: tir.PrimExpr) -> Residue:
    if isinstance(atom, (tir.Min, tir.Max)):
        return residue.join(residue_of_expr(engine, atom.a), residue_of_expr(engine, atom.b))
    operands = folding.operands_of_choice(atom)
    if operands is None or operands[0].dtype.vector:
        return residue.EVERYTHING
    test, a, b = operands
    yes, no = engine.where(test, a), engine.where(engine.negation(test), b)
    return residue.join(yes.residue(a), no.residue(b))


def residue_of_expr(engine: Engine, expr: tir.PrimExpr) -> Residue:
    """The class of an expression; arithmetic that wraps around keeps powers of two only."""
    if not expr.dtype.is_int or expr.dtype.lanes != 1 or expr.dtype.is_bool:
        return residue.EVERYTHING
    p = engine.poly(expr)
    result = residue_of_poly(engine, p)
    if expr in engine.facts.residues:
        return result
    if expr.dtype.family == "int" and not data_may_wrap(engine, expr):
        return result
    modulus = 1 << expr.dtype.bits
    coeff = gcd(result[0], modulus)
    if coeff == modulus:  # one value
        return 0, ops.wrap_int(result[1], expr.dtype)
    return residue.least(coeff, result[1] % modulus)
