"""What runs in another order than the text gives the values of the text."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy.exec.loops.plan.dependence import Edge
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.plan.schedule import components
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.counting import calls
from tests.exec.loops.support import load
from tests.exec.loops.written import run_row
from tests.rows import sections

ORDERS = sections("""
--- memory shared along a chain lives as long as all of it
def f(X: i32[4, 8], Y: i32[4, 8]):
    FIRST = T.alloc_buffer((4, 8), "int32")
    SECOND = T.alloc_buffer((4, 8), "int32")
    THIRD = T.alloc_buffer((4, 8), "int32")
    for i, j in T.grid(4, 8):
        P[i, j] = X[i, j] + 1
    for i, j in T.grid(4, 8):
        Q[i, j] = X[i, j] * 3 + P[i, j]
    for i, j in T.grid(4, 8):
        L[i, j] = T.abs(Q[i, j] - 50)
    for i, j in T.grid(4, 8):
        Y[i, j] = L[i, j] * 2
# with FIRST SECOND THIRD: P Q L | P L Q | Q P L | Q L P | L P Q | L Q P
--- a chain that ends in a reduction is made before it is filled
def f(X: i32[4], S: i32[4]):
    FIRST = T.alloc_buffer((4, 8), "int32")
    SECOND = T.alloc_buffer((4, 8), "int32")
    THIRD = T.alloc_buffer((4, 8), "int32")
    for i, k in T.grid(4, 8):
        P[i, k] = X[i] + 1
    for i, k in T.grid(4, 8):
        Q[i, k] = P[i, k] * 2
    for i, k in T.grid(4, 8):
        L[i, k] = Q[i, k] + X[i]
    for i, k in T.grid(4, 8):
        S[i] = S[i] + L[i, k]
# with FIRST SECOND THIRD: P Q L | P L Q | Q P L | Q L P | L P Q | L Q P
--- a scratch buffer of a block is not the result while it is read
def f(Y: i32[3, 4]):
    for i in S(3, "scratch"):
        Z = T.alloc_buffer((4,), "int32")
        for j in range(4):
            Z[j] = 1
            Y[vi, j] = T.abs(Z[j])
--- a scratch buffer of a block is not an intermediate result while it is read
def f(Y: i32[3, 4]):
    Q = T.alloc_buffer((3, 4), "int32")
    for i in S(3, "scratch"):
        Z = T.alloc_buffer((4,), "int32")
        for j in range(4):
            Z[j] = 1
            Q[vi, j] = T.abs(Z[j])
    for i, j in T.grid(3, 4):
        Y[i, j] = Q[i, j]
--- a table whose memory is that of one iteration stays in the loop of its readers
def f(X: i8[n]):
    FIRST = T.alloc_buffer((1,), "int8")
    FIRST[0] = T.int8(1)
    for i in S(n, "table"):
        D = T.alloc_buffer((n, n + 1), "int8")
        for a in range(n):
            for b in range(n + 1):
                D[a, b] = T.Cast("int8", vi + a) + X[vi]
        for p in range(n):
            for q in range((n + 1) // 2):
                for r in range(2):
                    X[i] = T.Cast("int8", T.if_then_else(q < 1, q, q - 1)) - D[q * 2 + r, p]
# args: n=2
# args: n=6
--- loops are not interchanged across stores that collide
def f(A: i32[4], C: i32[4], E: i32[8], X: i32[4, 4]):
    for i, j in T.grid(4, 4):
        C[i] = C[i] + A[j]
        if GUARD:
            E[INDEX] = C[i]
# with GUARD: A[j] < 9 | A[j] < 4 | A[j] < 4
# with INDEX: (i + j) % 4 | (i + j) // 2 | T.min(i + j, 3) | T.max(i + j, 3) - 3 | i * j % 4
#    | X[i, j] | X[j, 0] | T.Select(i < j, i, j) | i + j | 3
# args: A=[1, 2, 3, 4], C=[0, 10, 20, 30], X=[(5 * k // 4 + 3 * k) % 4 for k in range(16)]
--- stores that collide are in the order of the text
def f(A: i32[4], C: i32[4], E: i32[8], X: i32[4, 4]):
    for i, j in T.grid(4, 4):
        C[i] = C[i] + A[j]
        E[INDEX] = C[i]
# with INDEX: (i + j) % 4 | (i + j) // 2 | T.min(i + j, 3) | T.max(i + j, 3) - 3 | i * j % 4
#    | X[i, j] | X[j, 0] | T.Select(i < j, i, j) | i + j | 3
# args: A=[1, 2, 3, 4], C=[0, 10, 20, 30], X=[(5 * k // 4 + 3 * k) % 4 for k in range(16)]
--- a sum of products of any datatype is what its terms add up to
def f(A: T.Buffer((3, 5), "F"), B: T.Buffer((5, 2), "F"), C: T.Buffer((3, 2), "F"),
      D: T.Buffer((3, 2), "F")):
    for i, j, k in T.grid(3, 2, 5):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
        D[i, j] = D[i, j] + A[i, k] * B[k, j] * A[0, k]
# with F: int4 | uint4 | int8 | uint8 | int64 | float16 | bfloat16
# args: A=[k % 3 for k in range(15)], B=[k % 4 // 2 for k in range(10)], C=[1] * 6, D=[1] * 6
--- a block that may begin without an iteration stays beside what shares its loops
def f(n: T.int64, C: i32[4], E: i32[4], S: T.Buffer((), "int32")):
    for i in range(4):
        for k in range(n):
            if C[i] > 0:
                with T.block("sum"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = 1
                    C[vi] = C[vi] + 1
            S[()] = S[()] * 3 + C[i]
            E[(i + k) % 4] = S[()]
# args: n=(0, 1, 3), C=[1, 0, 2, -1], E=[0] * 4, S=[1]
--- extremes that are sought in one element are sought one after the other
def f(A: i32[3, 3, 4], N: i32[3, 3], B: i32[9], P: i32[9]):
    for i, j, k in T.grid(3, 3, 4):
        if A[i, j, k] > B[INDEX]:
            B[INDEX] = A[i, j, k]
            P[OTHER] = k
# with INDEX OTHER: i+j i+j | (i+j)%3 (i+j)%3 | T.min(i,j) T.min(i,j) | N[i,j] N[i,j]
#    | 3*i+j 3*i+j | 3*i+j i | 3*i+j 0
# args: A=[k * k % 9 for k in range(36)], N=[k * 4 % 9 for k in range(9)], B=[1] * 9, P=[-1] * 9
""")


@pytest.mark.parametrize("name", ORDERS)
def test_what_runs_in_another_order_has_the_values_of_the_text(name: str) -> None:
    run_row(ORDERS[name])


SPECIAL = (0.0, 1.0, 2.0, 3e38, 1e-38, np.inf, -np.inf, np.nan)
TERMS = {
    "(A[i, k] * B[k, j]) * s[()]": lambda a, b, s: (a * b) * s,
    "s[()] * (A[i, k] * B[k, j])": lambda a, b, s: s * (a * b),
    "(A[i, k] * s[()]) * B[k, j]": lambda a, b, s: (a * s) * b,
    "A[i, k] * (B[k, j] * s[()])": lambda a, b, s: a * (b * s),
    "A[i, k] * B[k, j] * B[k, j]": lambda a, b, s: a * b * b,
}


@pytest.mark.parametrize("term", TERMS)
def test_factors_of_floats_move_only_where_nothing_can_overflow(term: str) -> None:
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32"), s: T.Buffer((), "float32"),
      C: T.Buffer((2, 2), "float32")):
    for i, j, k in T.grid(2, 2, 2):
        C[i, j] = C[i, j] + {term}
""")
    run = load(func)
    for x, y, z in product(map(np.float32, SPECIAL), repeat=3):
        a, b, s = np.full((2, 2), x), np.full((2, 2), y), np.full((), z)
        c = np.ones((2, 2), np.float32)
        run(a, b, s, c)
        with np.errstate(all="ignore"):
            wanted = np.float32(1) + TERMS[term](x, y, z) + TERMS[term](x, y, z)
        np.testing.assert_allclose(c, np.full((2, 2), wanted), 1e-6, err_msg=f"{x} {y} {z}")


@given(st.integers(1, 9), st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_components_are_the_cycles_each_as_early_as_it_may_come(
    count: int, arrows: set[tuple[int, int]]
) -> None:
    orders = [Edge(a, b, ()) for a, b in arrows if a < count and b < count]
    reach = np.eye(count, dtype=bool)
    for edge in orders:
        reach[edge.source, edge.sink] = True
    for k in range(count):
        reach |= np.outer(reach[:, k], reach[k])
    found = components(range(count), orders)
    assert sorted(n for component in found for n in component) == list(range(count))
    left = set(range(count))
    for component in found:
        ready = [n for n in sorted(left) if all(reach[n, m] for m in left if reach[m, n])]
        assert component == [m for m in sorted(left) if reach[ready[0], m] and reach[m, ready[0]]]
        left -= set(component)


def test_components_take_time_as_their_orders_do() -> None:
    def line(count: int) -> list[Edge]:
        return [Edge(n, n + 1, ()) for n in range(count - 1)]

    few, many = (calls(partial(components, range(n), line(n))) for n in (100, 200))
    assert many < 2.5 * few


def test_what_follows_from_other_orders_is_not_compared() -> None:
    def updates(count: int) -> PrimFunc:
        loops = "    for i in range(8):\n        A[i] = A[i] * 2 + 1\n" * count
        return from_source(f"@T.prim_func\ndef f(A: T.Buffer((8,), 'int32')):\n{loops}")

    few, many = (calls(partial(compile_kernel, updates(n), "f")) for n in (40, 80))
    assert many < 2.7 * few


def tiled(n: str, tile: int) -> PrimFunc:
    return from_source(f"""
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, ({n}, {n}), "int32")
    B = T.match_buffer(b, ({n}, {n}), "int32")
    C = T.match_buffer(c, ({n}, {n}), "int32")
    for io, jo, ko in T.grid({n} // {tile}, {n} // {tile}, {n} // {tile}):
        with T.block("tile"):
            vi, vj, vk = T.axis.remap("SSR", [io, jo, ko])
            P = T.alloc_buffer(({tile}, {tile}), "int32")
            Q = T.alloc_buffer(({tile}, {tile}), "int32")
            for i, k in T.grid({tile}, {tile}):
                P[i, k] = A[vi * {tile} + i, vk * {tile} + k]
            for k, j in T.grid({tile}, {tile}):
                Q[k, j] = B[vk * {tile} + k, vj * {tile} + j]
            for i, j, k in T.grid({tile}, {tile}, {tile}):
                C[vi * {tile} + i, vj * {tile} + j] = (
                    C[vi * {tile} + i, vj * {tile} + j] + P[i, k] * Q[k, j])
""")


@pytest.mark.parametrize("n", ["4096", "n"])
def test_buffers_of_tiles_take_no_more_room_than_the_arguments_times_a_number(n: str) -> None:
    made = make_plan(tiled(n, 32), "f").local
    assert len(made) == 2
    for buffer in made:
        elements = 1
        for size in buffer.shape:
            elements *= eval(str(size), {"n": 4096, "T": T})
        assert elements <= 16 * 4096**2


@pytest.mark.parametrize("n", ["64", "n"])
@pytest.mark.parametrize("times", [0, 1])
def test_tiles_that_share_a_buffer_are_multiplied_one_after_the_other(n, times, monkeypatch):
    monkeypatch.setattr("relaxpy.exec.machine.tuning.Plans.GROWTH", times)
    monkeypatch.setattr("relaxpy.exec.machine.tuning.Plans.ELEMENTS", 1)
    a, b = np.arange(2 * 64 * 64, dtype=np.int32).reshape(2, 64, 64) % 7
    c = np.ones((64, 64), np.int32)
    load(tiled(n, 8))(a, b, c)
    np.testing.assert_array_equal(c, 1 + a @ b)
