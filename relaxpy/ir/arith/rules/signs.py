"""Decides whether a polynomial is negative, and whether it can be zero."""

from __future__ import annotations

from relaxpy.ir.arith.algebra import poly, terms
from relaxpy.ir.arith.algebra.atoms import Quotient, divisor
from relaxpy.ir.arith.algebra.facts import TRANSITIVE
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.engine import Engine

_SHORT, _LONG = 2, 5
"""The maximum length of a chain of inequalities, without and with the extension for chains."""


def is_negative(engine: Engine, p: Poly) -> bool | None:
    """Return True if p is always below 0, False if it never is, None if unknown.

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
    """Return whether p - slack < 0 follows from at most `steps` polynomials assumed to be negative.

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
