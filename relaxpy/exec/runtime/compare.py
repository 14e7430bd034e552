"""Comparison of run-time values in tests."""

from __future__ import annotations

import numpy as np

from relaxpy.exec.runtime.values import Array, Category, Value, category_of
from relaxpy.support.entry import user_facing

_OPAQUE = (Category.CLOSURE, Category.PACKED_FUNC, Category.PRIM_FUNC, Category.OBJECT)


@user_facing
def assert_allclose(
    actual: Value, desired: Value, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Assert that shapes are equal and elements differ by at most `atol + rtol * abs(desired)`.

    Tuples are compared field by field, numbers narrower than 32 bits in double precision. NaN is
    close to NaN only. Values that are not numbers must be equal.

    Errors:
        AssertionError: the values differ; `verbose` shows both.
    """
    __tracebackhide__ = True
    stack = [("the value", actual, desired)]
    while stack:
        where, a_value, b_value = stack.pop()
        if isinstance(a_value, tuple) and isinstance(b_value, tuple):
            if len(a_value) != len(b_value):
                raise AssertionError(
                    f"{where} has {len(a_value)} fields, {len(b_value)} were expected"
                )
            fields = zip(a_value, b_value, strict=True)
            stack += [(f"field {k} of {where}", *pair) for k, pair in enumerate(fields)][::-1]
            continue
        if _is_opaque(a_value) or _is_opaque(b_value):
            if a_value is not b_value and not np.array_equal(a_value, b_value):
                raise AssertionError(f"{where} is {a_value!r:.60}, {b_value!r:.60} was expected")
            continue
        a, b = _comparable(a_value), _comparable(b_value)
        if a.shape != b.shape:
            raise AssertionError(f"{where} has shape {a.shape}, {b.shape} was expected")
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=where, verbose=verbose)


def _is_opaque(value: Value) -> bool:
    numeric = isinstance(value, list) or hasattr(value, "__array__")
    return not numeric and category_of(value) in _OPAQUE


def _comparable(value: Value) -> Array:
    """The value as an array that NumPy can compare with tolerances: narrow numbers are widened."""
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array
