"""Halves that are rounded down and up, put together."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.atoms import Quotient, divisor, quotient_atom
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly


def with_halves(p: Poly) -> Poly:
    """p with halves that are rounded down and up put together.

    Rule:
        r // 2 + (r + 1) // 2 = r; what is left of it as r - r // 2 is (r + 1) // 2.
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
