"""Residue classes of integers."""

from __future__ import annotations

from math import gcd
from typing import TypeAlias

Residue: TypeAlias = tuple[int, int]
"""(coeff, base): the value is base modulo coeff; coeff 0 means that it is base."""

EVERYTHING: Residue = (1, 0)


def least(coeff: int, base: int) -> Residue:
    """The class with its base in [0, coeff)."""
    return (coeff, base % coeff) if coeff else (0, base)


def add(a: Residue, b: Residue) -> Residue:
    """The class of all sums."""
    return least(gcd(a[0], b[0]), a[1] + b[1])


def multiply(a: Residue, b: Residue) -> Residue:
    """The class of all products."""
    (m, r), (n, s) = a, b
    return least(gcd(m * n, m * s, n * r), r * s)


def join(a: Residue, b: Residue) -> Residue:
    """The least class that contains both."""
    return least(gcd(a[0], b[0], a[1] - b[1]), a[1])


def are_disjoint(a: Residue, b: Residue) -> bool:
    """True if no integer is in both classes."""
    common = gcd(a[0], b[0])
    return (a[1] - b[1]) % common != 0 if common else a[1] != b[1]


def meet(a: Residue, b: Residue) -> Residue:
    """The values of both classes; `a` where there are none (Chinese remainder theorem)."""
    (m, r), (n, s) = a, b
    if m == 0 or n == 0:
        return a if m == 0 else b
    common = gcd(m, n)
    if are_disjoint(a, b):
        return a
    total = m // common * n
    step = (s - r) // common * pow(m // common, -1, n // common) if n != common else 0
    return total, (r + m * step) % total
