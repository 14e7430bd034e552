"""Finds the strides of vector loads whose indices are floor divisions."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir.expr import FloorDiv, FloorMod, PrimExpr, Var


def distances(position: IndexPoly, var: Var, count: int, multiple: int) -> Sequence[int] | None:
    """The offset of the element of each of `count` lanes from that of the first one, if known.

    The lanes are consecutive values of `var`; the first is divisible by `multiple`. None
    if a distance is unknown, is not less than `count`, or decreases.
    """
    total = [0] * count
    for monomial, factor in position.terms.items():
        inside = [atom for atom in monomial if IndexPoly({(atom,): 1}).mentions({var})]
        if not inside:
            continue
        steps = _steps(inside[0], var, count, multiple) if len(monomial) == 1 else None
        if steps is None:
            return None
        total = [n + factor * step for n, step in zip(total, steps, strict=True)]
    order = [n - total[0] for n in total]
    return order if order == sorted(order) and order[-1] < count else None


def _steps(atom: PrimExpr, var: Var, count: int, multiple: int) -> Sequence[int] | None:
    """The value of an atom in each lane, without the part common to all."""
    if atom is var:
        return range(count)
    if not isinstance(atom, (FloorDiv, FloorMod)):
        return None
    divisor, linear = as_poly(atom.b).constant, affine(atom.a, {var})
    if divisor is None or divisor <= 0 or linear is None:
        return None
    step, offset = linear.constant(var), linear.offset.constant
    if step is None or offset is None:
        return None
    is_quotient = isinstance(atom, FloorDiv)
    if step * multiple % divisor == 0:
        values = [step * n + offset for n in range(count)]
        return [n // divisor if is_quotient else n % divisor for n in values]
    if step == 1 and multiple % count == 0 == divisor % count == offset % count:
        return [0] * count if is_quotient else range(count)
    return None
