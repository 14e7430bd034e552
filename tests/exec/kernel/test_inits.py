"""A block is initialised in the first iteration of its reduction, or if that has no iteration."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy.exec.compile import compile
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import tir as T
from tests.exec.kernel.support import check, load, methods


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


@T.prim_func
def split(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k0, k1 in T.grid(3, (m + 3) // 4, 4):
        with T.block("sum"):
            T.where(k0 * 4 + k1 < m)
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def split_outside(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for k0, i, k1 in T.grid((m + 3) // 4, 3, 4):
        with T.block("sum"):
            T.where(k0 * 4 + k1 < m and i < 2)
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def fused(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m, 4), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, f in T.grid(3, m * 4):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj, vk]


@T.prim_func
def repeated(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, f in T.grid(3, m * 4):
        with T.block("begins_four_times"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj]


@T.prim_func
def beside_another(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
        with T.block("copy"):
            vi, vk = T.axis.remap("SS", [i, k])
            X[vi, vk] = Y[vi] * T.float32(2)


@T.prim_func
def triangle(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k0 in T.grid(3, m):
        for k1 in range(k0, m):
            with T.block("sum"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.reduce(m, k0)
                vk = T.axis.reduce(m, k1)
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vj] * X[vi, vk]


@T.prim_func
def masked(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("sum"):
            T.where(X[i, k] < T.float32(5))
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def under_conditions(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i in range(3):
        if i > 0:
            for k in range(m):
                if k < 2:
                    with T.block("sum"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            Y[vi] = T.float32(100)
                        Y[vi] = Y[vi] + X[vi, vk]
                else:
                    with T.block("rest"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            Y[vi] = T.float32(7)
                        Y[vi] = Y[vi] - X[vi, vk]


@T.prim_func
def nested_init(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for k in range(m):
        with T.block("rows"):
            vk = T.axis.reduce(m, k)
            with T.init():
                for i in range(3):
                    with T.block("start"):
                        vi = T.axis.spatial(3, i)
                        Y[vi] = T.float32(100)
            for i in range(3):
                with T.block("sum"):
                    vi = T.axis.spatial(3, i)
                    Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def before_a_return(x: T.handle, y: T.handle) -> T.int32:
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i in range(3):
        for k in range(m):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
        if i == 1:
            T.evaluate(T.ret(i))
    T.evaluate(T.ret(9))


@T.prim_func
def where_it_holds_what_it_overwrites(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("sum"):
            T.where(Y[i] > T.float32(1))
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def where_never(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("first"):
            T.where(k < 0 or i > 1)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
        with T.block("second"):
            T.where(k == 0 and k < 0)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = Y[vi] * T.float32(2)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def only_begins(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("nothing"):
            vi, _vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            T.evaluate(0)


@T.prim_func
def fused_outside(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for f, i in T.grid(m * 4, 3):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj] * T.Cast("float32", vk)


@T.prim_func
def fused_but_the_last(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, f in T.grid(3, m * 8):
        with T.block("sum"):
            T.where(f < m * 4 - 4)
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj] * T.Cast("float32", vk)


@T.prim_func
def begins_in_each_row(x: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (3, m), "float32")
    Y = T.match_buffer(y, (3,), "float32")
    for i, k in T.grid(3, m):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[0] = Y[0] * T.float32(2)
            Y[(vi * m + vk) % 3] = Y[(vi * m + vk) % 3] + X[0, 0]


PROGRAMS = [
    fused_outside,
    fused_but_the_last,
    begins_in_each_row,
    only_begins,
    where_it_holds_what_it_overwrites,
    where_never,
    split,
    split_outside,
    repeated,
    beside_another,
    triangle,
    masked,
    under_conditions,
    nested_init,
    before_a_return,
]


@pytest.mark.parametrize("m", [0, 1, 3, 6])
@pytest.mark.parametrize("func", PROGRAMS)
def test_a_block_is_initialised_once(func: PrimFunc, m: int) -> None:
    check(func, numbers(3, m), numbers(3))


@pytest.mark.parametrize("m", [0, 1, 3])
def test_a_fused_reduction_is_initialised_once(m: int) -> None:
    check(fused, numbers(3, m, 4), numbers(3))
    assert methods(fused) == ["add reduction over f, f"]


@T.prim_func
def tiled(X: T.Buffer((3, 8), "float32"), Y: T.Buffer((3,), "float32")):
    for i, k_0, k_1 in T.grid(3, 2, 4):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(8, k_0 * 4 + k_1)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


def test_a_tiled_reduction_is_initialised_like_one_over_a_single_loop() -> None:
    check(tiled, numbers(3, 8), numbers(3))
    assert methods(tiled) == ["add reduction over k"]


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("func", PROGRAMS)
def test_a_block_is_initialised_in_memory_that_overlaps(func: PrimFunc, m: int) -> None:
    base = numbers(12)

    def arguments(memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return memory[: 3 * m].reshape(3, m), memory[1:4]

    theirs = run(func, arguments, base, "reference")
    np.testing.assert_array_equal(run(func, arguments, base, "numpy"), theirs)


def run(
    func: PrimFunc,
    arguments: Callable[[np.ndarray], tuple[np.ndarray, ...]],
    base: np.ndarray,
    target: str,
) -> np.ndarray:
    memory = base.copy()
    compile(func, target)[func.attrs["global_symbol"]](*arguments(memory))
    return memory


@T.prim_func
def later_than_the_start(X: T.Buffer((3, 4), "float32"), Y: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 4):
        with T.block("sum"):
            T.where(k >= 1)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


@T.prim_func
def up_to(X: T.Buffer((3, 4), "float32"), Y: T.Buffer((3,), "float32"), end: T.int64):
    for i, k in T.grid(3, 4):
        with T.block("sum"):
            T.where(k < end)
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]


def test_a_first_iteration_that_a_condition_excludes_initialises_nothing() -> None:
    check(later_than_the_start, numbers(3, 4), numbers(3))
    for end in (0, 2, 9):
        check(up_to, numbers(3, 4), numbers(3), end)
    found = numbers(3)
    load(up_to)(numbers(3, 4), found, 0)
    np.testing.assert_array_equal(found, numbers(3))


def test_an_empty_sum_is_its_initial_value() -> None:
    for func in (split, split_outside, beside_another, masked, nested_init):
        found = numbers(3)
        load(func)(numbers(3, 0), found)
        kept = 3 if func is split_outside else 100
        assert found.tolist() == [100, 100, kept]
