"""Initial values that are loaded: folded into an accumulation, they are still read first."""

import pytest

from tests.exec.loops.written import run_row
from tests.rows import sections

INITIAL = sections("""
--- a bias of a dense layer
def f(X: f32[n, k], W: f32[k, m], B: f32[m], Y: f32[n, m]):
    for i, j, r in SSR(n, m, k):
        with T.init():
            Y[vi, vj] = B[vj]
        Y[vi, vj] = Y[vi, vj] + X[vi, vr] * W[vr, vj]
# memory: 10: numbers(2, 1), numbers(1, 3), m[K : K + 3], m[:6].reshape(2, 3)
# memory: 10: numbers(2, 3), numbers(3, 3), m[K : K + 3], m[:6].reshape(2, 3)
--- a vector of starts
def f(X: f32[n, m], B: f32[n], Y: f32[n]):
    for i, j in SR(n, m):
        with T.init():
            Y[vi] = B[vi]
        Y[vi] = Y[vi] + X[vi, vj]
# memory: 10: numbers(3, 2), m[K : K + 3], m[:3]
--- a scratch vector of starts
def f(X: f32[n, m], B: f32[n], Y: f32[n]):
    start = T.alloc_buffer((n,), "float32")
    squares = T.alloc_buffer((n, m), "float32")
    for i in S(n):
        start[vi] = B[vi] * T.float32(2)
    for i, j in SS(n, m):
        squares[vi, vj] = X[vi, vj] * X[vi, vj]
    for i, j in SR(n, m):
        with T.init():
            Y[vi] = start[vi]
        Y[vi] = Y[vi] + squares[vi, vj]
# memory: 10: numbers(3, 2), m[K : K + 3], m[:3]
""")


@pytest.mark.each_choice
@pytest.mark.parametrize("fact", INITIAL)
@pytest.mark.parametrize("offset", range(7))
def test_initial_values_may_share_memory_with_the_result(fact: str, offset: int) -> None:
    """The memory of the initial values begins `K` elements after that of the result."""
    run_row(INITIAL[fact].replace("K", str(offset)))
