"""What runs in another order than the text gives the values of the text, worked out by hand."""

from itertools import permutations

import numpy as np
import pytest

from relaxpy.script import from_source
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
