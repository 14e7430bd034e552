"""Describes where two run-time values differ by more than rounding."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from relaxpy.exec.runtime.values import Array, ShapeTuple, Value
from relaxpy.ir.core.dtype import DataType

EPSILONS = 32
"""The error that is allowed, in roundings to the narrowest datatype."""


def rounding(dtype: DataType) -> float:
    """The relative error of one rounding to a float; 0 for other datatypes."""
    if dtype.family in ("bool", "int", "uint"):
        return 0.0
    return float(ml_dtypes.finfo(dtype.numpy()).eps)  # type: ignore[no-untyped-call]


def difference(
    actual: Value,
    expected: Value,
    rtol: float,
    where: str = "the result",
    samples: Sequence[Value] = (),
) -> str:
    """The first difference of two values; empty if there is none.

    Floats may differ by `rtol` times the largest finite number of the expected tensor. Floats and
    integers may differ by the largest difference of a tensor of the first of `samples` and that of
    another, which are results of the same computation with other roundings. Values that are not
    tensors, numbers, shapes or tuples of these are not compared.
    """
    if isinstance(expected, tuple) and not isinstance(expected, ShapeTuple):
        if not isinstance(actual, tuple) or len(actual) != len(expected):
            return f"{where} is {actual!r:.60}, expected {len(expected)} fields"
        texts = (
            difference(a, b, rtol, f"field {k} of {where}", [sample[k] for sample in samples])
            for k, (a, b) in enumerate(zip(actual, expected, strict=True))
        )
        return next(filter(None, texts), "")
    if isinstance(expected, np.ndarray):
        if not isinstance(actual, np.ndarray):
            return f"{where} is {actual!r:.60}, expected a tensor"
        return _tensor_difference(actual, expected, rtol, where, samples)
    if isinstance(expected, float) and isinstance(actual, float):
        return _tensor_difference(np.array(actual), np.array(expected), rtol, where, samples)
    if isinstance(expected, (int, str, ShapeTuple)) and actual != expected:
        return f"{where} is {actual!r:.60}, expected {expected!r:.60}"
    return ""


def _tensor_difference(
    actual: Array, expected: Array, rtol: float, where: str, samples: Sequence[Value]
) -> str:
    for fact in ("dtype", "shape"):
        one, other = getattr(actual, fact), getattr(expected, fact)
        if one != other:
            return f"{where} has {fact} {one}, expected {other}"
    spread = _spread(samples, expected.shape)
    if expected.dtype.kind in "biu":
        wrong = actual != expected
        if spread:
            wrong &= abs(actual.astype(np.float64) - expected.astype(np.float64)) > spread
    else:
        a, b = (v.astype(np.float64) for v in (actual, expected))
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
            allowed = max(rtol * largest, spread)
            wrong = ~((np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    element = f"element {place} of {where}" if place else where
    others = f"; {count} of {wrong.size} elements differ" if wrong.size > 1 else ""
    return f"{element} is {actual[place]}, expected {expected[place]}{others}"


def _spread(samples: Sequence[Value], shape: tuple[int, ...]) -> float:
    """The largest finite difference of elements of the first tensor and of another one."""
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    with np.errstate(all="ignore"):
        gaps = [np.abs(array - arrays[0]) for array in arrays[1:] if array.shape == shape]
    return max((float(np.max(g, initial=0.0, where=np.isfinite(g))) for g in gaps), default=0.0)
