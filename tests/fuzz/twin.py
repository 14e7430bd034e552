"""What graph functions compute, in plain NumPy and float64: the twin of a generated program.

A value carries a bound of how far relaxpy's may be from it, which grows with each rounding of the
datatype in which relaxpy computes: nothing else says how close the two have to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")
ULPS = 8
"""How many roundings a function such as exp may be off by."""

RECORD: list[Any] = []


def kind(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)


def unit(dtype: str) -> float:
    """The relative error of one rounding."""
    return float(ml_dtypes.finfo(kind(dtype)).eps) if dtype in FLOATS else 0.0


def least(dtype: str) -> float:
    return float(ml_dtypes.finfo(kind(dtype)).smallest_subnormal) if dtype in FLOATS else 0.0


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor: its elements, in float64 where the datatype is a float, and their errors."""

    data: Array
    dtype: str
    error: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


def enter(array: Array) -> Value:
    """An argument, which is exact."""
    name = array.dtype.name
    data = array.astype("float64") if name in FLOATS else np.array(array)
    return Value(data, name, np.zeros(array.shape))


def rounded(data: Any, dtype: str, error: Any, ulps: float = 1) -> Value:
    """`data` after rounding to a float, or wrapping to an integer; exact where it has no error."""
    if dtype not in FLOATS:
        return Value(np.asarray(data, kind(dtype)), dtype, np.zeros(np.shape(data)))
    data = np.asarray(data, "float64")
    error = np.broadcast_to(np.asarray(error, "float64"), data.shape)
    inexact = (data.astype(kind(dtype)).astype("float64") != data) | (error > 0) | (ulps > 1)
    grown = error + inexact * (ulps * unit(dtype) * (np.abs(data) + error) + least(dtype))
    return Value(data, dtype, grown)


SLOPES: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Any]]] = {
    "exp": (np.exp, lambda x, e: np.exp(x + e)),
    "tanh": (np.tanh, lambda x, e: 1),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x, e: 1),
    "sin": (np.sin, lambda x, e: 1),
    "cos": (np.cos, lambda x, e: 1),
    "atan": (np.arctan, lambda x, e: 1),
    "erf": (np.vectorize(math.erf, otypes=["float64"]), lambda x, e: 1.2),
    "sqrt": (np.sqrt, lambda x, e: 0.5 / np.sqrt(np.maximum(x - e, 0.5))),
    "log": (np.log, lambda x, e: 1 / np.maximum(x - e, 0.5)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x, e: 0.5 / np.maximum(x - e, 0.5) ** 1.5),
    "nn.silu": (lambda x: x / (1 + np.exp(-x)), lambda x, e: 1.2),
}
"""Functions, and how fast they may grow within an error of x."""
EXACT: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "negative": np.negative,
    "nn.relu": lambda x: np.maximum(x, 0),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
    "sign": np.sign,
    "isnan": np.isnan,
    "logical_not": lambda x: x == 0,
    "bitwise_not": np.invert,
}


def unary(name: str, x: Value) -> Value:
    if name in SLOPES:
        function, slope = SLOPES[name]
        return rounded(function(x.data), x.dtype, slope(x.data, x.error) * x.error, ULPS)
    if name == "square":
        return binary("multiply", x, x)
    dtype = "bool" if name == "isnan" else x.dtype
    return rounded(EXACT[name](x.data), dtype, x.error)


def _trunc_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    return (a - np.fmod(a, b)) // b  # the absolute value of the least integer is negative


BINARY: dict[str, Callable[[Array, Array], Any]] = {
    **{n: getattr(np, n) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{n: getattr(np, n) for n in ("equal", "not_equal", "less", "less_equal", "greater")},
    **{n: getattr(np, n) for n in ("greater_equal", "logical_and", "logical_or", "logical_xor")},
    **{n: getattr(np, n) for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide")},
    **{n: getattr(np, n) for n in ("left_shift", "right_shift")},
    "mod": np.fmod,
    "floor_mod": np.mod,
    "divide": _trunc_divide,
}
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def binary(name: str, x: Value, y: Value) -> Value:
    data = BINARY[name](x.data, y.data)
    a, b = np.abs(x.data), np.abs(y.data)
    match name:
        case "add" | "subtract":
            error = x.error + y.error
        case "multiply":
            error = a * y.error + b * x.error + x.error * y.error
        case "maximum" | "minimum":
            error = np.maximum(x.error, y.error)
        case "divide":
            low = np.maximum(b - y.error, 0.5)
            error = x.error / low + (a + x.error) / low**2 * y.error
        case _:
            error = np.zeros(())
    return rounded(data, "bool" if name in COMPARISONS else x.dtype, error)


def where(condition: Value, x: Value, y: Value) -> Value:
    error = np.where(condition.data, x.error, y.error)
    return Value(np.where(condition.data, x.data, y.data), x.dtype, error)


def number(value: float, dtype: str) -> Value:
    return enter(np.asarray(value, kind(dtype)))


def astype(x: Value, dtype: str) -> Value:
    if dtype in FLOATS:
        return rounded(x.data, dtype, x.error)
    if dtype == "bool":
        return rounded(x.data != 0, dtype, 0)
    whole = np.trunc(x.data).astype("int64") if x.dtype in FLOATS else x.data
    return Value(whole.astype(kind(dtype)), dtype, np.zeros(x.shape))


def _summed(x: Value, axis: int | None, keepdims: bool) -> tuple[Any, Any]:
    """The sum, and its error before it is rounded: what is narrower accumulates in float32."""
    wide = "float64" if x.dtype == "float64" else "float32"
    count = x.data.size if axis is None else x.shape[axis]
    total = x.data.sum(axis=axis, keepdims=keepdims)
    magnitude = (np.abs(x.data) + x.error).sum(axis=axis, keepdims=keepdims)
    exact = not x.error.any() and bool(np.all(x.data * 64 == np.round(x.data * 64)))
    exact = exact and bool(np.all(magnitude * 64 < 2.0 ** (52 if wide == "float64" else 23)))
    error = x.error.sum(axis=axis, keepdims=keepdims)
    return total, error + (0 if exact else (count + 1) * unit(wide) * magnitude)


def reduce(name: str, x: Value, axis: int | None, keepdims: bool) -> Value:
    if name in ("max", "min"):
        data = getattr(np, name)(x.data, axis=axis, keepdims=keepdims)
        return Value(data, x.dtype, np.max(x.error, axis=axis, keepdims=keepdims))
    if x.dtype == "bool":
        function = {"sum": np.any, "prod": np.all}[name]
        return rounded(function(x.data, axis=axis, keepdims=keepdims), "bool", 0)
    if name == "mean":
        count = x.data.size if axis is None else x.shape[axis]
        if x.dtype not in FLOATS:
            total = x.data.astype("int64").sum(axis=axis, keepdims=keepdims)
            return astype(Value(np.asarray(total / count), "float64", np.zeros(())), x.dtype)
        total, error = _summed(x, axis, keepdims)
        return rounded(total / count, x.dtype, error / count, 2)
    assert name == "sum"
    if x.dtype not in FLOATS:
        wrapped = x.data.sum(axis=axis, keepdims=keepdims, dtype=kind(x.dtype))
        return rounded(wrapped, x.dtype, 0)
    total, error = _summed(x, axis, keepdims)
    return rounded(total, x.dtype, error)


def argument(name: str, x: Value, axis: int, keepdims: bool) -> Value:
    return rounded(getattr(np, name)(x.data, axis=axis, keepdims=keepdims), "int64", 0)


def matmul(x: Value, y: Value) -> Value:
    if x.dtype not in FLOATS:
        data = np.matmul(x.data.astype("int64"), y.data.astype("int64"))
        return rounded(data.astype(kind(x.dtype)), x.dtype, 0)
    a, b = np.abs(x.data) + x.error, np.abs(y.data) + y.error
    error = np.matmul(a, y.error) + np.matmul(x.error, b)
    wide = "float64" if x.dtype == "float64" else "float32"
    error = error + (x.shape[-1] + 2) * unit(wide) * np.matmul(a, b)
    return rounded(np.matmul(x.data, y.data), x.dtype, error)


def softmax(x: Value, axis: int) -> Value:
    power = np.exp(x.data - x.data.max(axis=axis, keepdims=True, initial=-np.inf))
    data = power / power.sum(axis=axis, keepdims=True)
    wide = "float64" if x.dtype == "float64" else "float32"
    moved = 2 * x.error.max(initial=0) + (x.shape[axis] + 2 * ULPS) * unit(wide)
    return rounded(data, x.dtype, data * np.expm1(2 * moved), 2)


def place(function: Callable[..., Any], *xs: Value) -> Value:
    """What only moves elements: `function` of the data, and of the errors."""
    data = function(*(x.data for x in xs))
    return Value(np.asarray(data), xs[0].dtype, np.asarray(function(*(x.error for x in xs))))


PARTS: dict[str, Any] = {
    "overwritten": (),
    "later_rows": slice(1, None),
    "even_columns": (slice(None), slice(None, None, 2)),
}
"""The elements that kernels in place write."""


def doubled(x: Value, kernel: str) -> Value:
    """`x` with those elements twice as large that a kernel in place writes."""
    chosen = np.zeros(x.shape, bool)
    chosen[PARTS[kernel]] = True
    return where(Value(chosen, "bool", np.zeros(())), binary("add", x, x), x)


def decoded(words: Value, scales: Value, bits: int, group: int, size: int) -> Value:
    """Rows of `size` weights of few bits, whose scales are powers of two."""
    shifts = np.arange(32 // bits, dtype="uint32") * np.uint32(bits)
    digits = (words.data[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    whole = digits.reshape(len(words.data), -1)[:, :size] - ((1 << bits - 1) - 1.0)
    data = whole * np.repeat(scales.data, group, axis=1)[:, :size]
    return rounded(data, scales.dtype, np.zeros(data.shape))


def record(x: Value) -> Value:
    """The packed function of the program, which keeps what it is called with."""
    RECORD.append(x)
    return x


def truth(x: Value) -> bool:
    return bool(x.data)


def agree(found: Any, expected: Any, where: str = "the result") -> None:
    """Raise AssertionError unless a result of relaxpy is its twin's."""
    if isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list)), f"{where}: {found!r}"
        assert len(found) == len(expected), f"{where} has {len(found)} fields"
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            agree(a, b, f"field {k} of {where}")
        return
    if isinstance(expected, Value):
        assert found.dtype == kind(expected.dtype), f"{where}: {found.dtype}, {expected.dtype}"
        assert found.shape == expected.shape, f"{where}: {found.shape}, {expected.shape}"
        if expected.dtype not in FLOATS:
            np.testing.assert_array_equal(found, expected.data, where)
            return
        off = np.abs(found.astype("float64") - expected.data)
        # Numbers below the normal ones of float32 may be computed as 0.
        fine = (off <= expected.error + 2.0**-126) | (np.isnan(expected.data) & np.isnan(off))
        assert fine.all(), f"{where}: {found}, {expected.data}, allowed {expected.error}"
        return
    assert tuple(found) == tuple(expected), f"{where}: {found}, {expected}"


def shape_of(x: Value) -> Sequence[int]:
    return list(x.shape)
