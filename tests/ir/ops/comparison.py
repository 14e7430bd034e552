"""Values of operators beside their definition: whether they agree, and how closely they have to."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from relaxpy.ir.core.dtype import DataType
from tests.ir.ops.cases import Array

ROUNDINGS = 8
"""What one element of a result may be off by, beside the growth of errors in sums.

A function of the standard library is off by at most 4 units in the last place; the others are for
the arithmetic before and after it.
"""


def is_float(array: Array) -> bool:
    return DataType(array.dtype).is_float


def epsilon(dtype: Any) -> float:
    """The distance from 1 to the next number of a floating-point datatype."""
    return float(ml_dtypes.finfo(dtype).eps)


def doubles(array: Array) -> Array:
    """The same numbers, of which arithmetic is as good as exact: float64 in place of floats."""
    return array.astype("float64") if is_float(array) else array


def tolerance(dtype: Any, expected: Array, moved: Array, roundings: int, terms: int) -> Array:
    """How far each element of a result of `dtype` may be from its definition.

    An error has three sources, which add up. With u the epsilon of `dtype`, and v that of the
    datatype in which sums are computed, which is float32 or wider:

    - Each of a few operations rounds its result once, to `dtype`: `roundings` * u.
    - A sum of n terms rounds n times, to the datatype of sums. Errors that are independent of each
      other partly cancel: their sum grows as the square root of n (Higham and Mary, "A new approach
      to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019). There are not
      more terms than the operands have elements, `terms`: sqrt(n) * v.
    - What is rounded in the middle of a computation has the effect of operands that differ by one
      rounding. `moved` is that effect, by the definition itself: it is large where terms cancel, or
      where a function is steep, and 0 where elements are only moved or counted: `roundings` times.
      Integers are never moved: where sums of large ones cancel, the case has more `roundings`.

    The first two are relative to the element, and to the greatest element of the result where that
    is below 1: an element near 0 is often the difference of two others.
    """
    scale = np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape))
    relative = roundings * epsilon(dtype) + sqrt(terms) * epsilon(np.result_type(dtype, "float32"))
    bound: Array = relative * (scale + min(1.0, scale.max(initial=0.0))) + roundings * moved
    return bound


@dataclass(frozen=True)
class Definition:
    """The values that the definition of an operator has for certain inputs."""

    values: tuple[Array, ...]
    is_tuple: bool
    moved: tuple[Array, ...]
    """How far the values are moved by operands that differ by one rounding."""
    terms: int


def _fields(value: Any) -> tuple[Array, ...]:
    return tuple(np.asarray(v) for v in (value if isinstance(value, tuple) else (value,)))


def _difference(there: Array, here: Array) -> Array:
    if there.shape != here.shape or here.dtype.kind not in "f":
        return np.zeros(here.shape)
    difference = np.abs(there - here)
    return np.where(np.isfinite(difference), difference, 0.0)


def define(function: Callable[..., Any], inputs: tuple[Array, ...]) -> Definition:
    """The values of a definition, and how sensitive they are to errors of the inputs.

    The inputs are moved by one rounding: neighbours in opposite directions, then up or down by
    chance; and each time also the other way round. Of these two effects the lesser one counts:
    beside a jump, as of `floor` at an integer, one side is flat.
    """
    exact = tuple(map(doubles, inputs))
    value = function(*exact)
    here = _fields(value)
    moved = [np.zeros(v.shape) for v in here]
    random = np.random.default_rng(0)
    alternating = [1.0 - 2 * (np.indices(x.shape).sum(0) % 2) for x in inputs]
    by_chance = ([random.choice([-1.0, 1.0], x.shape) for x in inputs] for _ in range(2))
    for signs in (alternating, *by_chance) if any(map(is_float, inputs)) else ():
        effects = []
        for way in (1, -1):
            near = [
                x * (1 + way * sign * epsilon(given.dtype)) if is_float(given) else x
                for x, sign, given in zip(exact, signs, inputs, strict=True)
            ]
            there = _fields(function(*near))
            effects.append([_difference(a, b) for a, b in zip(there, here, strict=True)])
        moved = [np.maximum(m, np.minimum(*e)) for m, *e in zip(moved, *effects, strict=True)]
    terms = sum(x.size for x in inputs)
    return Definition(here, isinstance(value, tuple), tuple(moved), terms)


def _is_integer(result: Array, expected: Array, moved: Array, definition: Definition) -> Array:
    """Whether the elements of a result without floats are those of the definition.

    An integer that is the rounding of a real number may be that of one close by; the datatype of
    the computation is float32 or wider. Of a number outside the range, there is no integer.
    """
    if expected.dtype.kind != "f":
        same: Array = result == expected.astype(result.dtype)
        return same
    if result.dtype == bool:  # real numbers have no truth
        return np.ones(result.shape, "bool")
    bounds = np.iinfo(result.dtype)
    # The greatest int64 and the greatest uint64 are not numbers of float64.
    inside = (expected > bounds.min - 1.0) & (expected < float(bounds.max) + (bounds.bits < 64))
    bound = tolerance("float32", expected, moved, ROUNDINGS, definition.terms)
    below, above = np.trunc(expected - bound), np.trunc(expected + bound)
    exact = result.astype("float64")
    return ~inside | ((below <= exact) & (exact <= above))


def check(found: Any, definition: Definition, roundings: int = ROUNDINGS) -> None:
    """A value agrees in structure and shapes, and in numbers as closely as `tolerance` demands."""
    assert isinstance(found, tuple) == definition.is_tuple
    results = found if isinstance(found, tuple) else (found,)
    assert len(results) == len(definition.values)
    for result, expected, moved in zip(results, definition.values, definition.moved, strict=True):
        assert result.shape == expected.shape, f"shape {result.shape}, not {expected.shape}"
        with np.errstate(all="ignore"):
            if not is_float(result):
                differ = ~_is_integer(result, expected, moved, definition)
                assert not differ.any(), (
                    f"{differ.sum()} of {differ.size} elements of {result.dtype} differ, as "
                    f"{result[differ][:4]} from {expected[differ][:4]}"
                )
                continue
            bound = tolerance(result.dtype, doubles(expected), moved, roundings, definition.terms)
            # What is too large for the datatype is infinite in it.
            expected = expected.astype(result.dtype).astype("float64")
            exact = result.astype("float64")
            alike = (exact == expected) | (np.isnan(exact) & np.isnan(expected))
            close = alike | (np.abs(exact - expected) <= bound)
        if not close.all():
            worst = ~close
            raise AssertionError(
                f"{worst.sum()} of {worst.size} elements of {result.dtype} differ, as "
                f"{exact[worst][:4]} from {expected[worst][:4]}, by more than {bound[worst][:4]}"
            )
