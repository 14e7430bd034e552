"""Each intrinsic runs on the default target: as machine code, or on NumPy with the reason."""

import itertools

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.values import expressions
from relaxpy.ir.tir.intrinsics import BINARY_MATH, BITWISE, UNARY_MATH
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source

_INTEGERS = {*BITWISE, "popcount", "clz"}
_TWO = {*BINARY_MATH, *BITWISE} - {"bitwise_not"}


def kernel(name: str, dtype: str) -> PrimFunc:
    """A kernel that applies an intrinsic to the elements of two vectors, or of the first."""
    second = "T.int32(2)" if name == "ldexp" else "B[k]"
    call = f"T.{name}(A[k], {second})" if name in _TWO else f"T.{name}(A[k])"
    found = from_source(f"""
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n,), "{dtype}"), T.match_buffer(b, (n,), "{dtype}")
    C = T.match_buffer(c, (n,), "{dtype}")
    for i in range(n):
        with T.block("call"):
            k = T.axis.spatial(n, i)
            C[k] = {call}
""")
    assert isinstance(found, PrimFunc)
    return found


def run(func: PrimFunc, dtype: str, target: str) -> tuple[np.ndarray, relaxpy.Executable]:
    """What the kernel computes of small numbers, for 37 elements."""
    rng = np.random.default_rng(1)
    if dtype.startswith("float"):
        a, b = rng.uniform(0.1, 0.9, (2, 37)).astype(dtype)
    else:
        a, b = rng.integers(1, 5, (2, 37)).astype(dtype)
    executable = relaxpy.compile(func, target)
    out = np.zeros_like(a)
    executable["f"](a, b, out)
    return out, executable


CASES = [
    *itertools.product(sorted({*UNARY_MATH, *BINARY_MATH} - _INTEGERS), ("float32", "float64")),
    *itertools.product(sorted(_INTEGERS), ("int32", "uint8")),
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_an_intrinsic_is_machine_code_or_has_a_reason(name: str, dtype: str) -> None:
    func = kernel(name, dtype)
    found, executable = run(func, dtype, "native")
    expected, _ = run(func, dtype, "reference")
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-14)
    for row in executable.report():
        assert row.backend == "native" or row.reason.startswith("not native: ")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_intrinsic_without_machine_code_runs_on_numpy(dtype, monkeypatch) -> None:
    monkeypatch.setattr(expressions, "MATHS", frozenset())
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    found, executable = run(kernel("tanh", dtype), dtype, "native")
    expected, _ = run(kernel("tanh", dtype), dtype, "reference")
    np.testing.assert_allclose(found, expected, rtol=4 * float(np.finfo(dtype).eps))
    [row] = executable.report()
    assert (row.backend, row.reason) == ("numpy", "not native: the function tanh")
