"""Each intrinsic runs on the default target: as machine code, or on NumPy with the reason."""

import itertools
import warnings

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError
from relaxpy.exec.native.values import expressions
from relaxpy.ir.core.dtype import DataType
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


#: An expression of the elements of A and B of a datatype, A, B, and the value.
OF_EDGES = [
    ("T.clz(A[i])", "bool", [0, 1], [0, 0], [1, 0]),
    ("T.clz(A[i])", "int4", [1, -8], [0, 0], [3, 0]),
    ("T.clz(A[i])", "uint2", [0, 3], [0, 0], [2, 0]),
    ("T.clz(A[i])", "int64", [0, -(2**63)], [0, 0], [64, 0]),
    ("T.popcount(A[i])", "uint4", [7, 8], [0, 0], [3, 1]),
    ("T.popcount(A[i])", "bool", [0, 1], [0, 0], [0, 1]),
    ("T.shift_left(A[i], B[i])", "bool", [1, 1], [0, 1], [1, 0]),
    ("T.shift_right(A[i], B[i])", "bool", [1, 1], [0, 1], [1, 0]),
    ("T.fmod(A[i], B[i])", "int32", [-7, 7], [3, -3], [-1, 1]),
    ("T.copysign(A[i], B[i])", "int8", [3, -3], [-2, 2], [-3, 3]),
    ("T.ldexp(A[i], B[i])", "uint8", [3, 5], [4, 255], [48, 0]),
    ("T.ldexp(A[i], B[i])", "float32", [3, 3], [-1, -(2.0**40)], [1.5, 0]),
]


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize(("value", "dtype", "a", "b", "expected"), OF_EDGES)
def test_an_intrinsic_of_edges_is_the_same_on_all_targets(
    value: str, dtype: str, a: list[int], b: list[int], expected: list[int], target: str
) -> None:
    found = "int32" if "clz" in value else dtype
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((2,), "{dtype}"), B: T.Buffer((2,), "{dtype}"), C: T.Buffer((2,), "{found}")):
    for i in range(2):
        C[i] = {value}
""")
    out = np.zeros(2, DataType(found).numpy())
    kind = DataType(dtype).numpy()
    with warnings.catch_warnings(action="error"):
        relaxpy.compile(func, target)["f"](np.array(a).astype(kind), np.array(b).astype(kind), out)
    assert out.tolist() == expected


def test_the_next_integer_is_not_a_float() -> None:
    x = tir.Var("x", "int32")
    with pytest.raises(MisuseError, match="nextafter needs floats, found int32"):
        tir.nextafter(x, x)
