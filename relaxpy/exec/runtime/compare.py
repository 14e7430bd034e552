"""Comparison of run-time values in tests."""

from __future__ import annotations

import numpy as np

from relaxpy.exec.runtime.values import Array, Category, Value, category_of

_OPAQUE = (Category.CLOSURE, Category.PACKED_FUNC, Category.PRIM_FUNC, Category.OBJECT)


def assert_allclose(
    actual: Value, desired: Value, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Refuse values that differ in shape, or anywhere by more than `atol + rtol * abs(desired)`.

    Tuples are compared field by field, numbers of fewer than 32 bits in double precision; NaN is
    close to NaN alone. Of what is no number, equals are wanted.

    Errors:
        AssertionError: they differ; `verbose` shows both.
    """
    __tracebackhide__ = True
    waiting = [("the value", actual, desired)]
    while waiting:
        where, found, expected = waiting.pop()
        if isinstance(found, tuple) and isinstance(expected, tuple):
            if len(found) != len(expected):
                raise AssertionError(
                    f"{where} has {len(found)} fields, {len(expected)} were expected"
                )
            fields = zip(found, expected, strict=True)
            waiting += [(f"field {k} of {where}", *pair) for k, pair in enumerate(fields)][::-1]
            continue
        if _is_opaque(found) or _is_opaque(expected):
            if found is not expected and not np.array_equal(found, expected):
                raise AssertionError(f"{where} is {found!r:.60}, {expected!r:.60} was expected")
            continue
        a, b = _comparable(found), _comparable(expected)
        if a.shape != b.shape:
            raise AssertionError(f"{where} has shape {a.shape}, {b.shape} was expected")
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=where, verbose=verbose)


def _is_opaque(value: Value) -> bool:
    numeric = isinstance(value, list) or hasattr(value, "__array__")
    return not numeric and category_of(value) in _OPAQUE


def _comparable(value: Value) -> Array:
    """The value as an array that NumPy compares: it has no tolerances for small numbers."""
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array
