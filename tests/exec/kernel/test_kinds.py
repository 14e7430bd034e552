"""Each method by which a kernel can run, compared with the reference."""

from typing import Any

import numpy as np
import pytest

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.kernel.support import check, load, methods, source_of

rng = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def contraction(
    buffers: dict[str, tuple[int, ...]],
    extents: dict[str, int],
    target: str,
    term: str,
    *,
    init: int = 0,
    dtype: str = "float32",
    params: str = "",
) -> PrimFunc:
    """A block that adds `term` to `target`, reduced over the loops that `target` does not index."""
    declared = ", ".join(
        f'{name}: T.Buffer({shape}, "{"float32" if name == "C" else dtype}")'
        for name, shape in buffers.items()
    )
    kinds = "".join("S" if f"v{loop}" in target else "R" for loop in extents)
    blocked, loops = ", ".join(f"v{loop}" for loop in extents), ", ".join(extents)
    func = from_source(f"""
@T.prim_func
def kernel({declared}{params}):
    for {loops} in T.grid({", ".join(map(str, extents.values()))}):
        with T.block("C"):
            {blocked} = T.axis.remap("{kinds}", [{loops}])
            with T.init():
                {target} = T.float32({init})
            {target} = {target} + {term}
""")
    assert isinstance(func, PrimFunc)
    return func


CONTRACTIONS = {
    "by a transposed matrix": (
        {"A": (5, 7), "B": (3, 7), "C": (5, 3)},
        {"i": 5, "j": 3, "k": 7},
        "C[vi, vj]",
        "A[vi, vk] * B[vj, vk]",
    ),
    "of a shared matrix": (
        {"A": (2, 3, 4), "B": (4, 5), "C": (2, 3, 5)},
        {"p": 2, "i": 3, "j": 5, "k": 4},
        "C[vp, vi, vj]",
        "A[vp, vi, vk] * B[vk, vj]",
    ),
    "of a matrix and itself, by rows": (
        {"A": (4, 6), "C": (4,)},
        {"i": 4, "k": 6},
        "C[vi]",
        "A[vi, vk] * A[vi, vk]",
    ),
    "of two vectors": ({"A": (6,), "B": (6,), "C": ()}, {"k": 6}, "C[()]", "A[vk] * B[vk]"),
    "of three factors": (
        {"A": (4, 6), "B": (6, 5), "D": (6,), "C": (4, 5)},
        {"i": 4, "j": 5, "k": 6},
        "C[vi, vj]",
        "A[vi, vk] * B[vk, vj] * D[vk]",
    ),
}


@T.prim_func
def plain_loops(
    A: T.Buffer((5, 7), "float32"), B: T.Buffer((7, 3), "float32"), C: T.Buffer((5, 3), "float32")
):
    for i in range(5):
        for j in range(3):
            C[i, j] = T.float32(0)
            for k in range(7):
                C[i, j] += A[i, k] * B[k, j]


@T.prim_func
def batch_matmul(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (2, n, 3, 4), "float32")
    B = T.match_buffer(b, (2, n, 4, 5), "float32")
    C = T.match_buffer(c, (2, n, 3, 5), "float32")
    for p, q, i, j, k in T.grid(2, n, 3, 5, 4):
        with T.block("C"):
            vp, vq, vi, vj, vk = T.axis.remap("SSSSR", [p, q, i, j, k])
            with T.init():
                C[vp, vq, vi, vj] = T.float32(0)
            C[vp, vq, vi, vj] = C[vp, vq, vi, vj] + A[vp, vq, vi, vk] * B[vp, vq, vk, vj]


@T.prim_func
def conv(
    X: T.Buffer((2, 3, 6, 7), "float32"),
    W: T.Buffer((4, 3, 3, 3), "float32"),
    Y: T.Buffer((2, 4, 6, 7), "float32"),
):
    P = T.alloc_buffer((2, 3, 8, 9), "float32")
    for n, c, h, w in T.grid(2, 3, 8, 9):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            P[vn, vc, vh, vw] = T.if_then_else(
                vh >= 1 and vh < 7 and vw >= 1 and vw < 8, X[vn, vc, vh - 1, vw - 1], T.float32(0)
            )
    for n, o, h, w, c, y, x in T.grid(2, 4, 6, 7, 3, 3, 3):
        with T.block("conv"):
            vn, vo, vh, vw, vc, vy, vx = T.axis.remap("SSSSRRR", [n, o, h, w, c, y, x])
            with T.init():
                Y[vn, vo, vh, vw] = T.float32(0)
            Y[vn, vo, vh, vw] = Y[vn, vo, vh, vw] + P[vn, vc, vh + vy, vw + vx] * W[vo, vc, vy, vx]


@T.prim_func
def max_pool(X: T.Buffer((3, 8, 8), "float32"), Y: T.Buffer((3, 4, 4), "float32")):
    for c, h, w, y, x in T.grid(3, 4, 4, 2, 2):
        with T.block("pool"):
            vc, vh, vw, vy, vx = T.axis.remap("SSSRR", [c, h, w, y, x])
            with T.init():
                Y[vc, vh, vw] = T.min_value("float32")
            Y[vc, vh, vw] = T.max(Y[vc, vh, vw], X[vc, vh * 2 + vy, vw * 2 + vx])


@T.prim_func
def gather(
    table: T.Buffer((9, 4), "float32"), at: T.Buffer((5,), "int64"), Y: T.Buffer((5, 4), "float32")
):
    for i, j in T.grid(5, 4):
        with T.block("take"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = table[at[vi], vj]


@T.prim_func
def scatter_add(
    X: T.Buffer((6,), "float32"), at: T.Buffer((6,), "int32"), Y: T.Buffer((4,), "float32")
):
    for i in range(6):
        with T.block("add"):
            vi = T.axis.opaque(6, i)
            Y[at[vi]] = Y[at[vi]] + X[vi]


@T.prim_func
def scatter(
    X: T.Buffer((6,), "float32"), at: T.Buffer((6,), "int32"), Y: T.Buffer((4,), "float32")
):
    for i in range(6):
        Y[at[i]] = X[i] * T.float32(2)


@T.prim_func
def cumsum(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
    for i, j in T.grid(4, 6):
        with T.block("scan"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.scan(6, j)
            Y[vi, vj] = T.if_then_else(vj > 0, Y[vi, vj - 1], T.float32(0)) + X[vi, vj]


@T.prim_func
def flip_and_stride(X: T.Buffer((8, 5), "float32"), Y: T.Buffer((4, 5), "float32")):
    for i, j in T.grid(4, 5):
        Y[i, j] = X[7 - i, j] + X[i * 2 + 1, 4 - j]


@T.prim_func
def causal_mask(X: T.Buffer((5, 5), "float32"), Y: T.Buffer((5, 5), "float32")):
    for i, j in T.grid(5, 5):
        Y[i, j] = T.if_then_else(j <= i, X[i, j], T.float32("-inf"))


@T.prim_func
def concat(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, 3), "float32")
    B = T.match_buffer(b, (m, 3), "float32")
    C = T.match_buffer(c, (n + m, 3), "float32")
    for i, j in T.grid(n + m, 3):
        with T.block("concat"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.if_then_else(n <= vi, B[vi - n, vj], A[vi, vj])


@T.prim_func
def split_loop(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i0, i1 in T.grid((n + 3) // 4, 4):
        with T.block("B"):
            T.where(i0 * 4 + i1 < n)
            vi = T.axis.spatial(n, i0 * 4 + i1)
            B[vi] = A[vi] + T.float32(1)


@T.prim_func
def reshape(A: T.Buffer((4, 6), "float32"), B: T.Buffer((3, 8), "float32")):
    for i, j in T.grid(3, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[(vi * 8 + vj) // 6, (vi * 8 + vj) % 6]


@T.prim_func
def layer_norm(x: T.handle, g: T.Buffer((16,), "float32"), y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 16), "float32")
    Y = T.match_buffer(y, (n, 16), "float32")
    total = T.alloc_buffer((n,), "float32")
    squares = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 16):
        with T.block("stats"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
                squares[vi] = T.float32(0)
            total[vi] = total[vi] + X[vi, vk]
            squares[vi] = squares[vi] + X[vi, vk] * X[vi, vk]
    for i, j in T.grid(n, 16):
        with T.block("norm"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = (
                (X[vi, vj] - total[vi] / T.float32(16))
                * T.rsqrt(
                    squares[vi] / T.float32(16)
                    - total[vi] / T.float32(16) * (total[vi] / T.float32(16))
                    + T.float32(1e-5)
                )
                * g[vj]
            )


@T.prim_func
def jacobi(A: T.Buffer((10, 12), "float32"), steps: T.int32):
    B = T.alloc_buffer((10, 12), "float32")
    for _sweep in range(steps):
        for i, j in T.grid(8, 10):
            B[i + 1, j + 1] = (
                A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]
            ) * T.float32(0.25)
        for i, j in T.grid(8, 10):
            A[i + 1, j + 1] = B[i + 1, j + 1]


@T.prim_func
def collatz(X: T.Buffer((6,), "int32"), Y: T.Buffer((6,), "int32")):
    for i in range(6):
        Y[i] = 0
        while X[i] > 1:
            X[i] = T.if_then_else(X[i] % 2 == 0, X[i] // 2, X[i] * 3 + 1)
            Y[i] = Y[i] + 1


@T.prim_func
def row_buffer(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
    for i in range(4):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            row = T.alloc_buffer((6,), "float32")
            for j in range(6):
                row[j] = X[vi, j] * X[vi, 0]
            for j in range(6):
                Y[vi, j] = row[j] + row[5 - j]


@T.prim_func
def masked(
    X: T.Buffer((4, 6), "float32"), M: T.Buffer((6,), "bool"), Y: T.Buffer((4, 6), "float32")
):
    for i, j in T.grid(4, 6):
        if M[j]:
            Y[i, j] = X[i, j]
        else:
            Y[i, j] = Y[i, j] + T.float32(1)


@T.prim_func
def answer(X: T.Buffer((3,), "float32")) -> T.float32:
    X[0] = X[1] + X[2]
    T.evaluate(T.ret(X[0]))


WHOLE = [
    (plain_loops, [(5, 7), (7, 3), (5, 3)]),
    (batch_matmul, [(2, 3, 3, 4), (2, 3, 4, 5), (2, 3, 3, 5)]),
    (batch_matmul, [(2, 0, 3, 4), (2, 0, 4, 5), (2, 0, 3, 5)]),
    (conv, [(2, 3, 6, 7), (4, 3, 3, 3), (2, 4, 6, 7)]),
    (max_pool, [(3, 8, 8), (3, 4, 4)]),
    (flip_and_stride, [(8, 5), (4, 5)]),
    (causal_mask, [(5, 5), (5, 5)]),
    (concat, [(2, 3), (3, 3), (5, 3)]),
    (concat, [(0, 3), (3, 3), (3, 3)]),
    (split_loop, [(7,), (7,)]),
    (split_loop, [(8,), (8,)]),
    (split_loop, [(0,), (0,)]),
    (reshape, [(4, 6), (3, 8)]),
    (layer_norm, [(3, 16), (16,), (3, 16)]),
    (row_buffer, [(4, 6), (4, 6)]),
]


@pytest.mark.parametrize(("func", "shapes"), WHOLE)
def test_it_is_vectorised_and_correct(func: PrimFunc, shapes: list[tuple[int, ...]]) -> None:
    assert not [m for m in methods(func) if "loop" in m or "element" in m.split()]
    check(func, *(floats(*s) for s in shapes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CONTRACTIONS.values(), ids=list(CONTRACTIONS))
def test_a_product_is_contracted(case: tuple[Any, ...]) -> None:
    func = contraction(*case)
    assert methods(func) == ["contraction over k"]
    check(func, *(floats(*shape) for shape in case[0].values()), rtol=1e-4, atol=1e-5)


def test_a_product_goes_into_a_transposed_matrix_with_an_init_of_1() -> None:
    buffers = {"A": (5, 7), "B": (7, 3), "C": (3, 5)}
    extents = {"i": 5, "j": 3, "k": 7}
    func = contraction(buffers, extents, "C[vj, vi]", "A[vi, vk] * B[vk, vj]", init=1)
    assert methods(func) == ["contraction over k"]
    check(func, *(floats(*shape) for shape in buffers.values()), rtol=1e-4, atol=1e-5)


def test_a_product_of_half_floats_is_summed_in_single_precision() -> None:
    a, b = floats(4, 6).astype(np.float16), floats(6, 5).astype(np.float16)
    scaled_half = contraction(
        {"A": (4, 6), "B": (6, 5), "C": (4, 5)},
        {"i": 4, "j": 5, "k": 6},
        "C[vi, vj]",
        'T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj]) * s',
        dtype="float16",
        params=", s: T.float32",
    )
    check(scaled_half, a, b, floats(4, 5), 0.5, rtol=1e-5)
    assert methods(scaled_half) == ["contraction over k"]


def test_a_gather_takes_rows_and_refuses_indices_out_of_bounds() -> None:
    index = np.array([3, 0, 8, 3, 1])
    check(gather, floats(9, 4), index, floats(5, 4))
    for wrong in (9, -1):
        index[2] = wrong
        with pytest.raises(RuntimeCheckError, match=f"index {wrong} is outside"):
            load(gather)(floats(9, 4), index, floats(5, 4))


def test_a_scatter_adds_where_indices_repeat_and_the_last_store_wins() -> None:
    index = np.array([3, 0, 3, 3, 1, 0], np.int32)
    check(scatter_add, floats(6), index, floats(4))
    check(scatter, floats(6), index, floats(4))
    assert methods(scatter_add) == ["scatter (add)"]
    assert methods(scatter) == ["scatter"]
    with pytest.raises(RuntimeCheckError, match="outside"):
        load(scatter)(floats(6), index + 1, floats(4))


def test_a_running_sum_accumulates_over_all_rows_at_once() -> None:
    check(cumsum, floats(4, 6), floats(4, 6))
    assert methods(cumsum) == ["elementwise", "add scan over j"]


@T.prim_func
def running(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n + 1,), "int8")
    B = T.match_buffer(b, (3, n + 1), "float16")
    C = T.match_buffer(c, (n + 1,), "float32")
    D = T.match_buffer(d, (n, 3), "float32")
    for i in range(n):
        A[i + 1] = A[i] * T.int8(3)
    for i, j in T.grid(n, 3):
        B[j, i + 1] = T.max(T.Cast("float16", D[i, j]), B[j, i]) - T.float16(1)
    for i, j in T.grid(n, 3):
        B[j, i + 1] = T.max(T.Cast("float16", D[i, j]), B[j, i])
    for i in range(n):
        C[i + 1] = C[i] + D[i, 0] * T.Cast("float32", A[i])
    for i in range(n):
        C[i + 1] = C[i] + C[n - i]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_running_values_wrap_around_and_start_like_the_loop(n: int) -> None:
    a = np.arange(7, 8 + n).astype(np.int8)
    check(running, a, floats(3, n + 1).astype(np.float16), floats(n + 1), floats(n, 3), rtol=1e-4)
    assert methods(running) == [
        "mul scan over i",
        "loop over i, elementwise",
        "max scan over i",
        "add scan over i",
        "scalar loop",
    ]


def test_a_sweep_runs_step_by_step_over_whole_grids() -> None:
    check(jacobi, floats(10, 12), 3)
    check(jacobi, floats(10, 12), 0)
    assert all(m.startswith("loop over _sweep, ") and "scalar" not in m for m in methods(jacobi))


def test_a_while_loop_runs_one_element_at_a_time_and_says_so() -> None:
    check(collatz, np.array([1, 2, 7, 9, 27, 6], np.int32), np.zeros(6, np.int32))
    assert "scalar loop" in methods(collatz)


def test_a_condition_on_data_masks_the_stores() -> None:
    check(masked, floats(4, 6), rng.integers(0, 2, 6).astype(bool), floats(4, 6))


def test_a_kernel_can_return_a_scalar() -> None:
    x = floats(3)
    assert load(answer)(x) == x[0] == x[1] + x[2]


def test_an_output_may_be_read_through_another_argument() -> None:
    base = floats(5, 9)
    for shift in (0, 1, 2):
        ours, theirs = base.copy(), base.copy()
        load(flip_and_stride)(
            ours.reshape(-1)[:40].reshape(8, 5), ours.reshape(-1)[shift : 20 + shift].reshape(4, 5)
        )
        x, y = (
            theirs.reshape(-1)[:40].reshape(8, 5),
            theirs.reshape(-1)[shift : 20 + shift].reshape(4, 5),
        )
        for i in range(4):
            for j in range(5):
                y[i, j] = x[7 - i, j] + x[i * 2 + 1, 4 - j]
        np.testing.assert_array_equal(ours, theirs)


def test_hardware_intrinsics_are_named_with_their_position() -> None:
    @T.prim_func
    def hardware(X: T.Buffer((3,), "float32")):
        for i in range(3):
            X[i] = T.call_intrin("float32", "tir.ptx_mma", X[i])

    with pytest.raises(CompileError, match="ptx_mma"):
        source_of(hardware)


@T.prim_func
def sums(x: T.handle, y: T.handle, z: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    Z = T.match_buffer(z, (n, n), "float32")
    for i, k in T.grid(n, m):
        with T.block("rows"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(2)
            Y[vi] = Y[vi] + X[vi, vk]
    for i, j, k in T.grid(n, n, m):
        with T.block("products"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Z[vi, vj] = T.float32(0)
            Z[vi, vj] = Z[vi, vj] + X[vi, vk] * X[vj, vk]


@pytest.mark.parametrize("m", [0, 1, 4])
def test_a_reduction_without_iterations_is_its_init(m: int) -> None:
    check(sums, floats(3, m), floats(3), floats(3, 3))
    assert methods(sums) == ["add reduction over k", "contraction over k"]


@T.prim_func
def embed(table: T.handle, at: T.handle, y: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(table, (n, 4), "float32")
    at_ = T.match_buffer(at, (m, 2), "int32")
    Y = T.match_buffer(y, (4, m, 2), "float32")
    for j, i, k in T.grid(4, m, 2):
        with T.block("take"):
            vj, vi, vk = T.axis.remap("SSS", [j, i, k])
            Y[vj, vi, vk] = X[T.Cast("int64", at_[vi, vk]), vj]


@T.prim_func
def embed_rows(table: T.handle, at: T.handle, y: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(table, (n, 4), "float32")
    at_ = T.match_buffer(at, (m, 2), "int32")
    Y = T.match_buffer(y, (m, 2, 4), "float32")
    for i, k, j in T.grid(m, 2, 4):
        with T.block("take"):
            vi, vk, vj = T.axis.remap("SSS", [i, k, j])
            Y[vi, vk, vj] = T.max(X[T.Cast("int64", at_[vi, vk]), vj], T.float32(0))


@pytest.mark.parametrize("m", [0, 3])
def test_rows_are_taken_whole_where_they_lie_in_order(m: int) -> None:
    index = rng.integers(0, 5, (m, 2)).astype(np.int32)
    check(embed, floats(5, 4), index, floats(4, m, 2))
    check(embed_rows, floats(5, 4), index, floats(m, 2, 4))
    assert "rt.take" in source_of(embed_rows)
    if m:
        index[0, 0] = -1
        with pytest.raises(RuntimeCheckError, match="index -1 is outside"):
            load(embed_rows)(floats(5, 4), index, floats(m, 2, 4))


@T.prim_func
def repeated(
    A: T.Buffer((4, 3), "float32"), B: T.Buffer((3,), "float32"), C: T.Buffer((4,), "float32")
):
    for i, _r, k in T.grid(4, 5, 3):
        C[i] = C[i] + A[i, k] * B[k]


def test_a_product_is_summed_as_often_as_its_loops_run() -> None:
    check(repeated, floats(4, 3), floats(3), floats(4), rtol=1e-4)
