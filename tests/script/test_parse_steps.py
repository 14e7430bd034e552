"""Loops with steps, which count their iterations."""

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, ir_builder, tir as T
from relaxpy.script.ir_builder import tir as builder


def visited(func: tir.PrimFunc, size: int = 12) -> list[int]:
    """The elements that a kernel sets to 1, the only ones that it changes."""
    found = np.zeros(size, "int32")
    relaxpy.compile(func, target="reference")["main"](found)
    assert set(found) <= {0, 1}
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("bounds", [(0, 12, 2), (1, 11, 3), (2, 3, 5), (5, 5, 2), (9, 2, 2)])
@pytest.mark.parametrize("form", ["T.serial", "T.parallel", "T.unroll", "range"])
def test_a_loop_has_the_values_of_a_range(form: str, bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds
    text = f"{start}, {stop}, {step}" if form == "range" else f"{start}, {stop}, step={step}"
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((12,), "int32")):
    for i in {form}({text}):
        A[i] = A[i] + 1
""")
    assert visited(func) == list(range(*bounds))
    assert_structural_equal(from_source(func.script()), func)


def test_steps_down_and_python_ranges() -> None:
    order = range(10, 0, -4)

    @T.prim_func
    def main(A: T.Buffer((12,), "int32")):
        for i in order:
            A[i] = A[i] + 1
        for i in range(9, 5, -2):
            A[i] = A[i] + 1

    assert visited(main) == [2, 6, 7, 9, 10]


def test_symbolic_bounds() -> None:
    @T.prim_func
    def main(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "int32")
        for i in range(1, n, 3):
            A[i] = A[i] + 1

    for size in (1, 2, 4, 5, 12):
        assert visited(main, size) == list(range(1, size, 3))


def test_loops_of_the_builder() -> None:
    with ir_builder.IRBuilder() as ib, builder.prim_func():
        builder.func_name("main")
        A = builder.arg("A", builder.Buffer((12,), "int32"))
        with builder.serial(0, 12, step=5) as i:
            builder.buffer_store(A, 1, [i])
    assert visited(ib.get()) == [0, 5, 10]
