"""Intervals of integers, open ends included."""

from __future__ import annotations

from math import inf
from typing import TypeAlias

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import ops

Bound: TypeAlias = int | float
"""An integer, or an infinity."""
Interval: TypeAlias = tuple[Bound, Bound]
"""The minimum and the maximum."""

EVERYTHING: Interval = (-inf, inf)
_LARGEST = 1 << 4096
"""A larger bound counts as infinite, since products of products have ever more digits."""


def _widened(a: Bound) -> Bound:
    return a if -_LARGEST <= a <= _LARGEST else inf if a > 0 else -inf


def times(a: Bound, b: Bound) -> Bound:
    """a * b, where zero times infinity is zero; Python's integers may be beyond every float."""
    if isinstance(a, int) and isinstance(b, int):
        return _widened(a * b)
    if a == 0 or b == 0:
        return 0
    return inf if (a > 0) == (b > 0) else -inf


def plus(a: Bound, b: Bound) -> Bound:
    """a + b; Python's integers may be beyond every float."""
    return a if isinstance(a, float) else b if isinstance(b, float) else a + b


def add(a: Interval, b: Interval) -> Interval:
    """All sums of members."""
    return plus(a[0], b[0]), plus(a[1], b[1])


def scale(a: Interval, factor: int) -> Interval:
    """All members times `factor`."""
    low, high = times(a[0], factor), times(a[1], factor)
    return (low, high) if factor >= 0 else (high, low)


def multiply(a: Interval, b: Interval) -> Interval:
    """All products of members."""
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def raised(a: Interval, power: int) -> Interval:
    """All members to a positive power."""
    low, high = _widened(a[0] ** power), _widened(a[1] ** power)
    if power % 2:
        return low, high
    return (0 if a[0] <= 0 <= a[1] else min(low, high)), max(low, high)


def meet(a: Interval, b: Interval) -> Interval:
    """The members of both; where there is none, `a`."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def join(a: Interval, b: Interval) -> Interval:
    """The least interval that contains both."""
    return min(a[0], b[0]), max(a[1], b[1])


def _floor(a: Bound, b: Bound) -> Bound:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int):
        return a if b > 0 else -a
    if a == 0 or (isinstance(a, int) and (a > 0) == (b > 0)):
        return 0
    return -1 if isinstance(a, int) else (inf if (a > 0) == (b > 0) else -inf)


def _trunc(a: Bound, b: Bound) -> Bound:
    if isinstance(a, int) and isinstance(b, int):
        return ops.trunc_div(a, b)
    if isinstance(b, int):
        return a if b > 0 else -a
    return 0 if isinstance(a, int) else (inf if (a > 0) == (b > 0) else -inf)


def divide(a: Interval, b: Interval, *, floor: bool) -> Interval:
    """All quotients of a member of `a` by a member of `b` that is not 0."""
    signed_divisors = [(max(b[0], 1), b[1])] if b[1] >= 1 else []
    if b[0] <= -1:
        signed_divisors.append((b[0], min(b[1], -1)))
    rounded = _floor if floor else _trunc
    corners = [rounded(x, y) for ends in signed_divisors for y in ends for x in a]
    return (min(corners), max(corners)) if corners else EVERYTHING


def remainder(a: Interval, b: Interval, *, floor: bool) -> Interval:
    """All remainders of a member of `a` by a member of `b` that is not 0."""
    size = max(abs(b[0]), abs(b[1])) - 1
    if size < 0:
        return EVERYTHING
    if floor:
        result = (b[0] + 1 if b[0] < 0 else 0, b[1] - 1 if b[1] > 0 else 0)
        unchanged = b[0] > 0 and a[0] >= 0 and a[1] < b[0]
    else:
        result = (max(-size, min(a[0], 0)), min(size, max(a[1], 0)))
        unchanged = b[0] > 0 and -b[0] < a[0] and a[1] < b[0]
    if unchanged:
        return a
    if floor and b[0] >= 0 and a[0] >= 0:
        return 0, min(result[1], a[1])
    same_block = b[0] == b[1] and isinstance(b[0], int) and b[0] > 0
    if floor and same_block and _floor(a[0], b[0]) == _floor(a[1], b[0]):
        low, high, block = a[0], a[1], b[0]
        if isinstance(low, int) and isinstance(high, int):
            return low % block, high % block
    return result


def of_dtype(dtype: DataType) -> Interval:
    """All values of an integer datatype; signed ones of 64 bits, and others, are not bounded."""
    if not dtype.is_int or (dtype.family == "int" and dtype.bits >= 64):
        return EVERYTHING
    return ops.int_range(dtype)
