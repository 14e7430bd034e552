"""Local buffers that repeat slices of others need no memory, if nobody can tell."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy import te, tir
from tests.exec.loops.support import check, source_of
from tests.exec.loops.written import floats, kernel, run_row
from tests.rows import sections

COPIES = sections("""
--- the original is overwritten
def f(x: f32[8], y: f32[4]):
    first = T.alloc_buffer((4,), "float32")
    for i in S(4):
        first[vi] = x[vi + 2]
    for i in S(8):
        x[vi] = x[vi] * T.float32(2)
    for i in S(4):
        y[vi] = first[vi] + T.float32(1)
# body: y[...] = x[2:6]
--- the original is replaced by its reverse
def f(x: f32[8]):
    old = T.alloc_buffer((8,), "float32")
    for i in S(8):
        old[vi] = x[vi] + T.float32(1)
    for i in S(8):
        x[vi] = old[7 - vi]
# body: np.add(x, rt.float32[1.0], out=old)
--- rows that are added
def f(x: f32[6], y: f32[5]):
    wide = T.alloc_buffer((5, 6), "float32")
    for i, j in SS(5, 6):
        wide[vi, vj] = x[vj]
    for i, j in SR(5, 6):
        with T.init():
            y[vi] = T.float32(0)
        y[vi] = y[vi] + wide[vi, vj]
# body: wide[...] = x
--- within a loop
def f(x: f32[3, 8], y: f32[8]):
    part = T.alloc_buffer((8,), "float32")
    for k in range(3):
        for i in range(8):
            with T.block("part"):
                p, q = T.axis.remap("SS", [k, i])
                part[q] = x[p, q] + y[q]
        for i in range(8):
            with T.block("y"):
                p, q = T.axis.remap("SS", [k, i])
                y[q] = part[7 - q]
# body: np.add(x[k], y, out=part)
--- an index outside of a row stops the program, though the row after it has the element
def f(x: bool[n, n], y: bool[n]):
    copied = T.alloc_buffer((n * n,), "bool")
    for i in S(n * n):
        copied[vi] = x[0, vi]
    for i in S(n):
        y[vi] = copied[vi]
# args: n=1
# args: n=3 -> dimension 1
--- it also does where nothing reads the copy
def f(x: bool[n, n], y: bool[n]):
    copied = T.alloc_buffer((n, n), "bool")
    for i in S(n * n):
        copied[0, vi] = x[vi // n, vi % n]
    for i in S(n):
        y[vi] = T.bool(True)
# args: n=1
# args: n=3 -> dimension 1
--- an index outside the original still stops the program
def f(x: f32[8], y: f32[3], n: T.int64):
    part = T.alloc_buffer((3,), "float32")
    for i in S(3):
        part[vi] = x[T.int64(vi) + n]
    for i in S(3):
        y[vi] = part[vi]
# args: n=5
# args: n=6 -> dimension 0
""")


@pytest.mark.parametrize("fact", COPIES)
def test_copies_that_something_depends_on_remain(fact: str) -> None:
    run_row(COPIES[fact])


def test_a_reshaped_parameter_exists_before_the_blocks_that_read_it() -> None:
    row = """
def f(X: f32[n, 8], Y: f32[n, 2, 4]):
    R = T.alloc_buffer((n, 2, 4), "float32")
    E = T.alloc_buffer((n, 2, 4), "float32")
    for i, j, k in SSS(n, 2, 4):
        E[vi, vj, vk] = T.exp(Y[vi, vj, vk]) + T.float32(1)
    for i, j, k in SSS(n, 2, 4):
        R[vi, vj, vk] = X[vi, vj * 4 + vk]
    for i, j, k in SSS(n, 2, 4):
        Y[vi, vj, vk] = T.exp(R[vi, vj, vk]) * E[vi, vj, vk] + R[vi, vj, vk]
# args: n=0
# args: n=1
# args: n=5
# body: rt.blocks
"""
    run_row(row)
    text = source_of(kernel(row)).rpartition("return\n")[2]
    assert text.index("R = X.reshape((n, 2, 4))") < text.index("def rows")


Made = Callable[[te.Tensor, te.Tensor, int], te.Tensor]
SIZE = 6
AXIS = te.reduce_axis((0, SIZE), "r")
MAKERS: list[Made] = [
    lambda a, b, k: te.compute((SIZE, 3), lambda i, j: a[i, j + k % 4]),
    lambda a, b, k: te.compute((SIZE, SIZE), lambda i, j: a[i, j] * 2.0 + b[i, j]),
    lambda a, b, k: te.compute((SIZE, SIZE), lambda i, j: a[j, i]),
    lambda a, b, k: te.compute((SIZE, SIZE), lambda i, j: a[i, k % SIZE]),
    lambda a, b, k: te.compute((SIZE, SIZE), lambda i, j: a[SIZE - 1 - i, j]),
    lambda a, b, k: te.compute(
        (SIZE, SIZE), lambda i, j: tir.if_then_else(j < k % SIZE, a[i, j], b[i, j - k % SIZE])
    ),
    lambda a, b, k: te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, AXIS] * b[AXIS, j], AXIS)),
]


def doubled(t: te.Tensor) -> te.Tensor:
    return te.compute((SIZE, SIZE), lambda i, j: t[i, j % 3] + t[i, j // 2])


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_slices_agree_with_the_reference(seed: int) -> None:
    choose = np.random.default_rng(seed)
    tensors = [te.placeholder((SIZE, SIZE), "float32", name) for name in "ab"]
    inputs = tuple(tensors)
    for _ in range(7):
        maker = MAKERS[choose.integers(len(MAKERS))]
        a, b = (tensors[k] for k in choose.integers(len(tensors), size=2))
        made = maker(a, b, int(choose.integers(12)))
        if made.shape[1] == 3:
            made = doubled(made)
        tensors.append(made)
    func = te.create_prim_func([*inputs, *tensors[-2:]])
    check(func, *(floats(SIZE, SIZE) for _ in range(4)), rtol=1e-4, atol=1e-4)
