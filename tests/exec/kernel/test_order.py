"""What runs in another order than the text gives the values of the text, worked out by hand."""

from functools import partial
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy.exec.kernel import compile_kernel
from relaxpy.exec.kernel.plan.dependence import Edge
from relaxpy.exec.kernel.plan.planner import make_plan
from relaxpy.exec.kernel.plan.schedule import components
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.counting import calls
from tests.exec.kernel.support import load

LOCALS = {name: f'    {name} = T.alloc_buffer((4, 8), "int32")\n' for name in "PQL"}


@pytest.mark.parametrize("declared", [*permutations("PQL")], ids="".join)
def test_memory_shared_along_a_chain_lives_as_long_as_all_of_it(declared: tuple[str, ...]) -> None:
    func = from_source(
        "@T.prim_func\n"
        'def f(X: T.Buffer((4, 8), "int32"), Y: T.Buffer((4, 8), "int32")):\n'
        + "".join(LOCALS[name] for name in declared)
        + """
    for i, j in T.grid(4, 8):
        P[i, j] = X[i, j] + 1
    for i, j in T.grid(4, 8):
        Q[i, j] = X[i, j] * 3 + P[i, j]
    for i, j in T.grid(4, 8):
        L[i, j] = T.abs(Q[i, j] - 50)
    for i, j in T.grid(4, 8):
        Y[i, j] = L[i, j] * 2
"""
    )
    x, y = np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros((4, 8), np.int32)
    load(func)(x, y)
    np.testing.assert_array_equal(y, abs(4 * x - 49) * 2)


@pytest.mark.parametrize("declared", [*permutations("PQL")], ids="".join)
def test_a_chain_that_ends_in_a_reduction_is_made_before_it_is_filled(
    declared: tuple[str, ...],
) -> None:
    func = from_source(
        "@T.prim_func\n"
        'def f(X: T.Buffer((4,), "int32"), S: T.Buffer((4,), "int32")):\n'
        + "".join(LOCALS[name] for name in declared)
        + """
    for i, k in T.grid(4, 8):
        P[i, k] = X[i] + 1
    for i, k in T.grid(4, 8):
        Q[i, k] = P[i, k] * 2
    for i, k in T.grid(4, 8):
        L[i, k] = Q[i, k] + X[i]
    for i, k in T.grid(4, 8):
        S[i] = S[i] + L[i, k]
"""
    )
    x, s = np.arange(4, dtype=np.int32), np.ones(4, np.int32)
    load(func)(x, s)
    np.testing.assert_array_equal(s, 1 + 8 * (3 * x + 2))


@pytest.mark.parametrize("outer_first", [True, False])
def test_a_scratch_buffer_of_a_block_is_not_the_result_while_it_is_read(outer_first: bool) -> None:
    outer = '    Q = T.alloc_buffer((3, 4), "int32")\n'
    func = from_source(
        "@T.prim_func\n"
        'def f(Y: T.Buffer((3, 4), "int32")):\n'
        + outer * outer_first
        + """
    for i in range(3):
        with T.block("scratch"):
            vi = T.axis.spatial(3, i)
            Z = T.alloc_buffer((4,), "int32")
            for j in range(4):
                Z[j] = 1
                Y[vi, j] = T.abs(Z[j])
""".replace("Y", "Q" if outer_first else "Y")
        + """
    for i, j in T.grid(3, 4):
        Y[i, j] = Q[i, j]
"""
        * outer_first
    )
    y = np.zeros((3, 4), np.int32)
    load(func)(y)
    np.testing.assert_array_equal(y, np.ones((3, 4)))


COLLIDING = {
    "(i + j) % 4": lambda i, j: (i + j) % 4,
    "(i + j) // 2": lambda i, j: (i + j) // 2,
    "T.min(i + j, 3)": lambda i, j: min(i + j, 3),
    "T.max(i + j, 3) - 3": lambda i, j: max(i + j, 3) - 3,
    "i * j % 4": lambda i, j: i * j % 4,
    "X[i, j]": lambda i, j: (5 * i + 3 * j) % 4,
    "X[j, 0]": lambda i, j: (5 * j) % 4,
    "T.Select(i < j, i, j)": min,
    "i + j": lambda i, j: i + j,
    "3": lambda i, j: 3,
}


@pytest.mark.parametrize("index", COLLIDING)
@pytest.mark.parametrize("guard", ["", "if A[j] < 4:\n            "])
def test_loops_are_not_interchanged_across_stores_that_collide(index: str, guard: str) -> None:
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), E: T.Buffer((8,), "int32"),
      X: T.Buffer((4, 4), "int32")):
    for i, j in T.grid(4, 4):
        C[i] = C[i] + A[j]
        {guard}E[{index}] = C[i]
""")
    a, c = np.array([1, 2, 3, 4], np.int32), np.array([0, 10, 20, 30], np.int32)
    e = np.full(8, -1, np.int32)
    x = np.array([[(5 * i + 3 * j) % 4 for j in range(4)] for i in range(4)], np.int32)
    wanted_c, wanted_e = c.tolist(), e.tolist()
    for i in range(4):
        for j in range(4):
            wanted_c[i] += j + 1
            if not guard or j + 1 < 4:
                wanted_e[COLLIDING[index](i, j)] = wanted_c[i]
    load(func)(a, c, e, x)
    assert (c.tolist(), e.tolist()) == (wanted_c, wanted_e)


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


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "int8", "uint8", "int64", "float16", "bfloat16"]
)
def test_a_sum_of_products_of_any_datatype_is_what_its_terms_add_up_to(dtype: str) -> None:
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((3, 5), "{dtype}"), B: T.Buffer((5, 2), "{dtype}"),
      C: T.Buffer((3, 2), "{dtype}"), D: T.Buffer((3, 2), "{dtype}")):
    for i, j, k in T.grid(3, 2, 5):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
        D[i, j] = D[i, j] + A[i, k] * B[k, j] * A[0, k]
""")
    kind = DataType(dtype).numpy()
    a, b = np.arange(15).reshape(3, 5) % 3, np.arange(10).reshape(5, 2) % 4 // 2
    c, d = np.ones((3, 2), kind), np.ones((3, 2), kind)
    load(func)(a.astype(kind), b.astype(kind), c, d)
    for found, sums in ((c, 1 + a @ b), (d, 1 + (a * a[0]) @ b)):
        wanted = sums.astype(np.int8).astype(kind)
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


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
def test_tiles_that_share_a_buffer_are_multiplied_one_after_the_other(
    n: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaxpy.exec.kernel.plan.expansion._MAX_GROWTH", times)
    monkeypatch.setattr("relaxpy.exec.kernel.plan.expansion._MAX_ELEMENTS", 1)
    a, b = np.arange(2 * 64 * 64, dtype=np.int32).reshape(2, 64, 64) % 7
    c = np.ones((64, 64), np.int32)
    load(tiled(n, 8))(a, b, c)
    np.testing.assert_array_equal(c, 1 + a @ b)


def test_a_block_that_may_begin_without_an_iteration_stays_beside_what_shares_its_loops() -> None:
    func = from_source("""
@T.prim_func
def f(n: T.int64, C: T.Buffer((4,), "int32"), E: T.Buffer((4,), "int32"),
      S: T.Buffer((), "int32")):
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
""")
    for n in (0, 1, 3):
        c, e, s = np.array([1, 0, 2, -1], np.int32), np.zeros(4, np.int32), np.ones((), np.int32)
        wanted_c, wanted_e, wanted_s = c.tolist(), e.tolist(), 1
        for i in range(4):
            if n == 0 and wanted_c[i] > 0:
                wanted_c[i] = 1
            for k in range(n):
                if wanted_c[i] > 0:
                    wanted_c[i] = (1 if k == 0 else wanted_c[i]) + 1
                wanted_s = wanted_s * 3 + wanted_c[i]
                wanted_e[(i + k) % 4] = wanted_s
        load(func)(n, c, e, s)
        wanted = [np.array(w).astype(np.int32) for w in (wanted_c, wanted_e, wanted_s % (1 << 32))]
        for found, right in zip((c, e, s), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


SOUGHT = ["i + j", "(i + j) % 3", "T.min(i, j)", "N[i, j]", "3 * i + j"]


@pytest.mark.parametrize(
    ("index", "other"), [*((i, i) for i in SOUGHT), ("3 * i + j", "i"), ("3 * i + j", "0")]
)
def test_extremes_that_are_sought_in_one_element_are_sought_one_after_the_other(
    index: str, other: str
) -> None:
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((3, 3, 4), "int32"), N: T.Buffer((3, 3), "int32"),
      B: T.Buffer((9,), "int32"), P: T.Buffer((9,), "int32")):
    for i, j, k in T.grid(3, 3, 4):
        if A[i, j, k] > B[{index}]:
            B[{index}] = A[i, j, k]
            P[{other}] = k
""")
    rng = np.random.default_rng(3)
    a = rng.integers(0, 9, (3, 3, 4)).astype(np.int32)
    n = rng.integers(0, 9, (3, 3)).astype(np.int32)
    b, p = np.ones(9, np.int32), np.full(9, -1, np.int32)
    best, place = b.tolist(), p.tolist()
    for i, j, k in product(range(3), range(3), range(4)):
        names = {"i": i, "j": j, "N": n, "T": SimpleNamespace(min=min)}
        where, beside = eval(index, names), eval(other, names)
        if a[i, j, k] > best[where]:
            best[where], place[beside] = int(a[i, j, k]), k
    load(func)(a, n, b, p)
    assert (b.tolist(), p.tolist()) == (best, place)
