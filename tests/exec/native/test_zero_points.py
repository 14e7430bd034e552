"""Sums of products of bytes with zero points run as products of bytes, and are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.guard_pages import guarded

Array = np.ndarray[Any, Any]
ROWS, COLUMNS, DEPTH = 5, 19, 18
KERNEL = """
@T.prim_func
def main(a: T.handle, b: T.handle, p: T.handle, q: T.handle, s: T.int32, c: T.handle):
    T.func_attr({{"global_symbol": "main"}})
    m, n, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, ({m}, {k}), "{left}")
    B = T.match_buffer(b, ({k}, {n}), "{right}")
    P = T.match_buffer(p, ({m},), "{left}")
    Q = T.match_buffer(q, ({n},), "int32")
    C = T.match_buffer(c, ({m}, {n}), "int32")
    for i, j, l in T.grid({m}, {n}, {k}):
        with T.block("C"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, l])
{init}            C[vi, vj] = C[vi, vj] + ({product})
"""
A, B = 'T.Cast("int32", A[vi, vl])', 'T.Cast("int32", B[vl, vj])'
P, Q = 'T.Cast("int32", P[vi])', "Q[vj]"


def is_expanded(executable: Any) -> bool:
    """Whether the kernel has a sum of plain products."""
    return "C_products[" in executable.kernel_source("main", kind="tree")


def text(product: str, left: str, right: str, *, fixed: bool = True, init: str = "0") -> str:
    """A kernel with the product; without `init` it adds to what is there."""
    sizes = {"m": ROWS, "n": COLUMNS, "k": DEPTH} if fixed else {x: x for x in "mnk"}
    if init:
        init = f"            with T.init():\n                C[vi, vj] = {init}\n"
    return KERNEL.format(product=product, left=left, right=right, init=init, **sizes)


def arrays(m: int, n: int, k: int, left: str, right: str, seed: int = 0) -> list[Array]:
    """The operands, all bytes among them, and zero points of which some overflow in sums."""
    rng = np.random.default_rng(seed)

    def of(dtype: str, *shape: int) -> Array:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)

    return [of(left, m, k), of(right, k, n), of(left, m), of("int32", n)]


def wrapped(values: Array) -> Array:
    """Integers modulo 2 ** 32."""
    return np.array([int(x) % 2**32 for x in values.ravel()], "uint32").view("int32")


def expected(a: Array, b: Array, p: Array | int, q: Array | int) -> Array:
    """The sums as integers of any size."""
    return (a.astype(object) - p) @ (b.astype(object) - q)


CASES: dict[str, Callable[..., tuple[Any, Any]]] = {
    f"({A} - 3) * ({B} - 5)": lambda p, q, s: (3, 5),
    f"({B} + 128) * ({A} - 7)": lambda p, q, s: (7, -128),
    f"{A} * ({B} - s)": lambda p, q, s: (0, s),
    f"({A} - {P}) * {B}": lambda p, q, s: (p, 0),
    f"({A} - {P}) * ({B} - {Q})": lambda p, q, s: (p, q),
    f"({A} - s * {P}) * (s - 1 + {B})": lambda p, q, s: (s * p, 1 - s),
}


@pytest.mark.each_choice
@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "int8"), ("uint8",) * 2])
@pytest.mark.parametrize("product", CASES)
def test_zero_points_of_any_form(product: str, left: str, right: str) -> None:
    a, b, p, q = arrays(ROWS, COLUMNS, DEPTH, left, right)
    zeros = CASES[product](p.astype(object)[:, None], q.astype(object), 11)
    source = from_source(text(product, left, right))
    for target in ("native", "numpy", "reference"):
        executable = relaxpy.compile(source, target=target)
        assert target != "native" or is_expanded(executable)
        placed = [guarded(x, at_end=True) for x in (a, b, p, q)]
        result = guarded(np.full((ROWS, COLUMNS), 77, "int32"), at_end=True)
        executable["main"](*placed, 11, result)
        np.testing.assert_array_equal(result.ravel(), wrapped(expected(a, b, *zeros)))


@pytest.mark.parametrize("init", ["", "4"])
def test_any_sizes_and_initial_values(init: str) -> None:
    source = from_source(text(f"({A} - {P}) * ({B} - {Q})", "int8", "int8", fixed=False, init=init))
    native = relaxpy.compile(source, target="native")
    assert "_rest[" in native.kernel_source("main", kind="tree")
    for m, n, k in ((1, 1, 1), (9, 130, 64), (3, 5, 0), (0, 4, 4), (140, 3, 1100)):
        a, b, p, q = arrays(m, n, k, "int8", "int8")
        result = np.full((m, n), 77, "int32")
        native["main"](a, b, p, q, 0, result)
        want = expected(a, b, p.astype(object)[:, None], q) + (77 if init == "" else 4)
        np.testing.assert_array_equal(result.ravel(), wrapped(want))


@pytest.mark.parametrize(
    "product",
    [
        f'({A} - T.Cast("int32", vl)) * {B}',  # it depends on the sum
        f"({A} - C[vi, vj]) * {B}",  # it is what is computed
        f"({A} - T.truncdiv(8, s)) * {B}",  # it may have no value
        f'(T.Cast("int32", A[vi, vl] - P[vi])) * {B}',  # bytes overflow
    ],
)
def test_what_is_no_zero_point(product: str) -> None:
    run_row(f"""
def f(A: u8[m, k], B: i8[k, n], P: u8[m], Q: i32[n], s: T.int32, C: i32[m, n]):
    for i, j, l in SSR(m, n, k):
        with T.init():
            C[vi, vj] = 0
        C[vi, vj] = C[vi, vj] + ({product})
# args: m=5, n=19, k=18, s=3
# not tree: _rest[
""")


def test_a_convolution_and_what_follows_it() -> None:
    row = """
def f(x: u8[2, 3, 5, 6], w: i8[13, 3, 3, 3], z: i32[13], y: i8[2, 13, 3, 4]):
    C = T.alloc_buffer((2, 13, 3, 4), "int32")
    for n, o, h, v, c, r, s in SSSSRRR(2, 13, 3, 4, 3, 3, 3):
        with T.init():
            C[vn, vo, vh, vv] = 0
        C[vn, vo, vh, vv] = C[vn, vo, vh, vv] + (
            (i32(x[vn, vc, vh + vr, vv + vs]) - 128) * (i32(w[vo, vc, vr, vs]) - z[vo]))
    for n, o, h, v in SSSS(2, 13, 3, 4):
        y[vn, vo, vh, vv] = i8(T.max(T.min(T.shift_right(C[vn, vo, vh, vv], 8), 127), -128))
# args: x=[k * 7 % 256 for k in range(180)], w=[k * 5 % 256 - 128 for k in range(351)]
# tree: in registers:
# tree: C_products
"""
    run_row(row)
