"""Integers divided by constants of either sign, alone and in chains, on every target.

All values of 8 bits are tried, and the ends of wider datatypes; the results are NumPy's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, te, tir

Array = np.ndarray[Any, Any]
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def values(dtype: str) -> Array:
    """All values of 8 bits, or some at the ends and around zero."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if high < 256:
        return np.arange(low, high + 1).astype(dtype)
    near = (low, high - 40, high // 2, low // 2, max(low, -20), high // 3)
    return np.array([n + k for n in near for k in range(41)], dtype)


def divisors(dtype: str) -> list[int]:
    """Small ones of both signs, and those at the ends."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    tried = (low, low + 1, low // 3 * 2, -100, -5, -2, -1, 1, 3, 100, high)
    return sorted({d for d in tried if d and low <= d <= high})


def toward_zero(x: Array, by: Any) -> Array:
    return np.asarray((x - np.fmod(x, by)) // by)


def elementwise(function: Callable[[Any, Any], Any]) -> Callable[..., relax.Expr]:
    """The call of a kernel that computes a function of an element and a literal."""

    def call(builder: relax.BlockBuilder, x: relax.Expr, by: int, dtype: str) -> relax.Expr:
        literal = tir.IntImm(dtype, by)
        compute = lambda a: te.compute(a.shape, lambda i: function(a[i], literal))  # noqa: E731
        return builder.call_te(compute, x)

    return call


def operator(op: Callable[[Any, Any], relax.Expr]) -> Callable[..., relax.Expr]:
    """The call of an operator with a constant."""
    return lambda builder, x, by, dtype: op(x, relax.const(by, dtype))


FORMS: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array, Any], Array]]] = {
    "R.floor_divide": (operator(relax.op.floor_divide), lambda x, by: x // by),
    "R.floor_mod": (operator(relax.op.floor_mod), lambda x, by: x % by),
    "truncdiv": (elementwise(tir.truncdiv), toward_zero),
    "truncmod": (elementwise(tir.truncmod), lambda x, by: np.fmod(x, by)),
    "a chain": (
        elementwise(lambda a, by: a // by // by + a % by),
        lambda x, by: x // by // by + x % by,
    ),
    "a chain toward zero": (
        elementwise(lambda a, by: tir.truncdiv(tir.truncdiv(a, by), by)),
        lambda x, by: toward_zero(toward_zero(x, by), by),
    ),
    "of a sum": (elementwise(lambda a, by: (a + by) // by), lambda x, by: (x + by) // by),
    "of a product": (elementwise(lambda a, by: a * by // by), lambda x, by: x * by // by),
}


@pytest.mark.rule("PX-2")
@pytest.mark.parametrize(
    ("dtype", "symbolic"), [*((dtype, False) for dtype in DTYPES), ("int8", True), ("int64", True)]
)
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_quotients_by_constants_are_those_of_numpy(target: str, dtype: str, symbolic: bool) -> None:
    x = values(dtype)
    shape = (tir.Var("n", "int64") if symbolic else len(x),)
    builder = relax.BlockBuilder()
    parameter = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    tried = [(form, by) for form in FORMS for by in divisors(dtype)]
    with builder.function("main", [parameter]):
        found = [builder.emit(FORMS[f][0](builder, parameter, by, dtype)) for f, by in tried]
        builder.emit_func_output(relax.Tuple(found))
    results = relaxpy.compile(builder.get(), target)["main"](x)
    with np.errstate(all="ignore"):
        for (form, by), result in zip(tried, results, strict=True):
            expected = FORMS[form][1](x, np.array(by, dtype))
            np.testing.assert_array_equal(result, expected, f"{form} by {by}")
