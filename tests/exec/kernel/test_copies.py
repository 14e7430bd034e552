"""Local buffers that repeat slices of others need no memory, if nobody can tell."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy import te, tir
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import tir as T
from tests.exec.kernel.support import check, load, source_of

rng = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype="float32")


@T.prim_func
def overwritten(x: T.Buffer((8,), "float32"), y: T.Buffer((4,), "float32")):
    first = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("first"):
            p = T.axis.spatial(4, i)
            first[p] = x[p + 2]
    for i in range(8):
        with T.block("x"):
            p = T.axis.spatial(8, i)
            x[p] = x[p] * T.float32(2)
    for i in range(4):
        with T.block("y"):
            p = T.axis.spatial(4, i)
            y[p] = first[p] + T.float32(1)


@T.prim_func
def exchanged(x: T.Buffer((8,), "float32")):
    old = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("old"):
            p = T.axis.spatial(8, i)
            old[p] = x[p] + T.float32(1)
    for i in range(8):
        with T.block("x"):
            p = T.axis.spatial(8, i)
            x[p] = old[7 - p]


@T.prim_func
def accumulated(x: T.Buffer((6,), "float32"), y: T.Buffer((5,), "float32")):
    wide = T.alloc_buffer((5, 6), "float32")
    for i, j in T.grid(5, 6):
        with T.block("wide"):
            p, q = T.axis.remap("SS", [i, j])
            wide[p, q] = x[q]
    for i, j in T.grid(5, 6):
        with T.block("y"):
            p, q = T.axis.remap("SR", [i, j])
            with T.init():
                y[p] = T.float32(0)
            y[p] = y[p] + wide[p, q]


@T.prim_func
def within_a_loop(x: T.Buffer((3, 8), "float32"), y: T.Buffer((8,), "float32")):
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


@pytest.mark.parametrize(
    ("func", "shapes", "copy"),
    [
        (overwritten, [(8,), (4,)], "y[...] = x[2:6]"),
        (exchanged, [(8,)], "np.add(x, 1.0, out=old)"),
        (accumulated, [(6,), (5,)], "wide[...] = x"),
        (within_a_loop, [(3, 8), (8,)], "np.add(x[k], y, out=part)"),
    ],
)
def test_copies_that_something_depends_on_remain(
    func: tir.PrimFunc, shapes: list[tuple[int, ...]], copy: str
) -> None:
    check(func, *(floats(*shape) for shape in shapes))
    assert copy in source_of(func).rpartition("return\n")[2]


@T.prim_func
def outside(x: T.Buffer((8,), "float32"), y: T.Buffer((3,), "float32"), n: T.int64):
    part = T.alloc_buffer((3,), "float32")
    for i in range(3):
        with T.block("part"):
            p = T.axis.spatial(3, i)
            part[p] = x[T.int64(p) + n]
    for i in range(3):
        with T.block("y"):
            p = T.axis.spatial(3, i)
            y[p] = part[p]


def test_an_index_outside_the_original_still_stops_the_program() -> None:
    check(outside, floats(8), floats(3), 5)
    with pytest.raises(RuntimeCheckError, match="dimension 0"):
        load(outside)(floats(8), floats(3), 6)


@T.prim_func
def reshaped_in_blocks(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 8), "float32")
    Y = T.match_buffer(y, (n, 2, 4), "float32")
    R = T.alloc_buffer((n, 2, 4), "float32")
    E = T.alloc_buffer((n, 2, 4), "float32")
    for i, j, k in T.grid(n, 2, 4):
        with T.block("e"):
            p, q, r = T.axis.remap("SSS", [i, j, k])
            E[p, q, r] = T.exp(Y[p, q, r]) + T.float32(1)
    for i, j, k in T.grid(n, 2, 4):
        with T.block("r"):
            p, q, r = T.axis.remap("SSS", [i, j, k])
            R[p, q, r] = X[p, q * 4 + r]
    for i, j, k in T.grid(n, 2, 4):
        with T.block("y"):
            p, q, r = T.axis.remap("SSS", [i, j, k])
            Y[p, q, r] = T.exp(R[p, q, r]) * E[p, q, r] + R[p, q, r]


def test_a_reshaped_parameter_exists_before_the_blocks_that_read_it() -> None:
    for rows in (0, 1, 5):
        check(reshaped_in_blocks, floats(rows, 8), floats(rows, 2, 4))
    text = source_of(reshaped_in_blocks).rpartition("return\n")[2]
    assert "rt.blocks" in text
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
