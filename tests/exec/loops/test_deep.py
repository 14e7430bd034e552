"""Kernels with more nested loops than Python permits."""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.numpy.runtime import grid
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from relaxpy.support.pysource import render

TARGETS = ["numpy", "reference"]
RANKS = [6, 20, 31, 62]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("target", TARGETS)
def test_tensors_may_have_as_many_axes_as_numpy_gives_them(target: str, rank: int) -> None:
    ones = "1, " * (rank - 2)
    func = from_source(f"""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()
    y = R.reshape(x, (n, m, {ones}))
    z = R.permute_dims(y)
    w = R.add(y, z)
    return (R.sum(w, axis=0), R.squeeze(R.exp(y)))
""")
    x = np.arange(6, dtype="float32").reshape(2, 3)
    total, powers = relaxpy.compile(IRModule({"main": func}), target=target)["main"](x)
    y = x.reshape(2, 3, *[1] * (rank - 2))
    np.testing.assert_allclose(total, (y + y.T).sum(axis=0))
    np.testing.assert_allclose(powers, np.exp(x), rtol=1e-6)


#: One operation on an expression `e` in step k, by the element `x`; with the same of NumPy.
STEPS: dict[str, tuple[Callable[[Any, Any, int], Any], Callable[[Any, Any, int], Any]]] = {
    "select": (lambda e, x, k: tir.Select(x > k, e, k), lambda e, x, k: np.where(x > k, e, k)),
    "if": (lambda e, x, k: tir.if_then_else(x > k, e, k), lambda e, x, k: np.where(x > k, e, k)),
    "xor": (lambda e, x, k: tir.bitwise_xor(e * 3, k), lambda e, x, k: (e * 3) ^ k),
    "sum": (lambda e, x, k: e * 3 + k, lambda e, x, k: e * 3 + k),
    "min": (lambda e, x, k: tir.min(e * 3, x + k), lambda e, x, k: np.minimum(e * 3, x + k)),
    "cast": (lambda e, x, k: tir.Cast("int64", tir.Cast("int32", e) + k), lambda e, x, k: e + k),
}


@pytest.mark.parametrize("target", [*TARGETS, "native"])
@pytest.mark.parametrize("name", STEPS)
def test_expressions_of_a_hundred_operations_run(name: str, target: str) -> None:
    step, expected_step = STEPS[name]
    a, b = (tir.decl_buffer((5,), "int64", name) for name in "AB")
    i = tir.Var("i", "int64")
    value = load = tir.BufferLoad(a, [i])
    x = result = np.array([-7, 0, 3, 50, 99], "int64")
    for k in range(100):
        value = step(value, load, k)
        result = expected_step(result, x, k)
    loop = tir.For(i, 0, 5, tir.ForKind.SERIAL, tir.BufferStore(b, value, [i]))
    params = [tir.Var(name, "handle") for name in "ab"]
    func = tir.PrimFunc(params, loop, None, dict(zip(params, (a, b), strict=True)))
    found = np.zeros(5, "int64")
    relaxpy.compile(func, target=target)["main"](x, found)
    np.testing.assert_array_equal(found, result)


#: One operation that uses an expression `e` several times in step k, and the same on an integer.
TWICE: dict[str, tuple[Callable[[Any, int], Any], Callable[[int, int], int]]] = {
    "abs": (lambda e, k: tir.abs(e - k), lambda e, k: abs(e - k)),
    "sum": (lambda e, k: e * e % 1000 + e - k, lambda e, k: e * e % 1000 + e - k),
    "max": (lambda e, k: tir.max(e - k, k - e), lambda e, k: max(e - k, k - e)),
    "and": (
        lambda e, k: tir.Select(tir.And(e > k, e % 3 > 0), e - 1, e + k),
        lambda e, k: e - 1 if e > k and e % 3 > 0 else e + k,
    ),
}


@pytest.mark.parametrize("target", [*TARGETS, "native"])
@pytest.mark.parametrize("name", TWICE)
def test_scalars_with_shared_operands_are_computed_once(name: str, target: str) -> None:
    step, expected_step = TWICE[name]
    a, b = (tir.decl_buffer((1,), "int64", name) for name in "AB")
    value = tir.BufferLoad(a, [0])
    for k in range(30):
        value = step(value, k)
    params = [tir.Var(name, "handle") for name in "ab"]
    store = tir.BufferStore(b, value, [0])
    func = tir.PrimFunc(params, store, None, dict(zip(params, (a, b), strict=True)))
    run = relaxpy.compile(func, target=target)["main"]
    for x in (-7, 0, 3, 50):
        result, found = x, np.zeros(1, "int64")
        for k in range(30):
            result = expected_step(result, k)
        run(np.array([x]), found)
        assert found[0] == result


def nest(lines: int, inner: str, *, between: str = "") -> str:
    text = '@T.prim_func\ndef main(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):\n'
    for k in range(lines):
        pad = "    " * (k + 1)
        stop = "2" if k < 5 else "i0 + 2 - i0" if k == 6 else "1"
        text += f"{pad}for i{k} in range({stop}):\n"
        text += f"{pad}    {between}\n" if between else ""
    return f"{text}{'    ' * (lines + 1)}{inner}\n"


@pytest.mark.parametrize("target", TARGETS)
def test_loops_run_one_after_the_other_in_their_order(target: str) -> None:
    """Each iteration reads the results of all previous ones, so the order matters."""
    place = "(i0 * 5 + i1 * 3 + i2 + i3 * 7 + i4 * 11 + i6 * 13 + i29) % 64"
    func = from_source(nest(30, f"A[{place}] = (A[({place} + 9) % 64] * 3 + B[i0 + i6]) % 1000"))
    a, b = np.arange(64, dtype="int32"), np.arange(64, dtype="int32")[::-1].copy()
    expected = a.copy()
    for i0, i1, i2, i3, i4, i6 in np.ndindex(2, 2, 2, 2, 2, 2):
        k = (i0 * 5 + i1 * 3 + i2 + i3 * 7 + i4 * 11 + i6 * 13) % 64
        expected[k] = (expected[(k + 9) % 64] * 3 + b[i0 + i6]) % 1000
    relaxpy.compile(IRModule({"main": func}), target=target)["main"](a, b)
    np.testing.assert_array_equal(a, expected)


ONCE = [f"i{k}" for k in range(2, 16) if k != 9]


def deep(inner: str, **stops: str) -> str:
    """Sixteen nested loops with two iterations, or with extents in `stops`."""
    text = '@T.prim_func\ndef main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):\n'
    for k in range(16):
        text += f"{'    ' * (k + 1)}for i{k} in range({stops.get(f'i{k}', 2)}):\n"
    return text + "".join(f"{'    ' * 17}{line}\n" for line in inner.splitlines())


@pytest.mark.parametrize("target", TARGETS)
def test_a_break_ends_the_innermost_of_many_loops_only(target: str) -> None:
    once = {f"i{k}": "A[7]" for k in range(3, 14)}  # as many iterations as the array says: one
    func = from_source(deep("B[i14] = B[i14] + 1\nif i15 == A[i14]:\n    break", **once))
    a, b = np.array([0, 1, 0, 0, 0, 0, 0, 1], "int32"), np.zeros(8, "int32")
    relaxpy.compile(IRModule({"main": func}), target=target)["main"](a, b)
    assert list(b[:2]) == [2**3, 2**4]


@pytest.mark.parametrize("target", TARGETS)
def test_the_extent_of_an_inner_loop_is_evaluated_each_time(target: str) -> None:
    text = deep("A[i0] = A[i0] + 1", **dict.fromkeys(ONCE, "1"), i9="A[0]")
    a, b = np.array([1, 0, 0, 0, 0, 0, 0, 0], "int32"), np.zeros(8, "int32")
    relaxpy.compile(IRModule({"main": from_source(text)}), target=target)["main"](a, b)
    assert list(a[:2]) == [4, 8]  # doubled twice, then four counted twice


@pytest.mark.parametrize("target", TARGETS)
def test_a_division_in_a_bound_is_evaluated_only_if_its_loop_is_reached(target: str) -> None:
    text = deep("A[0] = A[0] + 1", i3="A[1]", i12="4 // A[2]")
    a, b = np.array([7, 0, 0, 0, 0, 0, 0, 0], "int32"), np.zeros(8, "int32")
    main = relaxpy.compile(IRModule({"main": from_source(text)}), target=target)["main"]
    main(a, b)
    assert a[0] == 7
    a[1] = 1
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        main(a, b)


def test_loops_that_python_cannot_nest_are_refused() -> None:
    text = nest(25, "A[i0] = B[A[1]]", between="B[A[0]] = A[B[1]] + 1")
    func = from_source(text.replace("range(1)", "range(B[0])"))
    with pytest.raises(CompileError, match="nest deeper than Python"):
        relaxpy.compile(IRModule({"main": func}), target="numpy")
    native = relaxpy.compile(IRModule({"main": func}), target="native")
    assert native.source.count("for ") >= 25  # which is shown, but could not run
    other = np.arange(64, dtype="int32")
    with pytest.raises(CompileError, match="nest deeper than Python"):
        native["main"](other, other)  # it refuses arguments that overlap


def test_loops_that_python_cannot_nest_are_refused_where_arguments_overlap() -> None:
    text = nest(25, "A[i0] = B[i1 + 1]", between="A[0] = A[1] + B[0]")
    func = from_source(text.replace("range(1)", "range(i0 + 1 - i0)"))
    main, reference = (
        relaxpy.compile(IRModule({"main": func}), target=target)["main"] for target in TARGETS
    )
    a, b, other = (np.arange(64, dtype="int32") for _ in range(3))
    main(a, b)
    reference(other, b)
    np.testing.assert_array_equal(a, other)
    with pytest.raises(CompileError, match="nest deeper than Python"):
        main(a, a)


def test_a_grid_has_every_combination_in_the_order_of_loops() -> None:
    assert list(grid(range(2), range(1, 3))) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert list(grid(range(2), range(0))) == []


@pytest.mark.parametrize("target", TARGETS)
def test_lets_that_double_a_value_again_and_again_are_computed_one_by_one(target: str) -> None:
    """After substitution forty squares are 2**40 factors."""
    lets = "".join(f"        x{k + 1} = x{k} * x{k} % 9973 + x{k}\n" for k in range(40))
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    for i in range(8):
        x0 = A[i]
{lets}        B[i] = B[i] + x40
""")
    a = np.arange(8, dtype="int64")
    b = a * 3
    expected = a.copy()
    for _ in range(40):
        expected = expected * expected % 9973 + expected
    relaxpy.compile(IRModule({"main": func}), target=target)["main"](a, b)
    np.testing.assert_array_equal(b, a * 3 + expected)


def test_statements_that_run_one_by_one_compute_a_value_once() -> None:
    """They take the place of whole arrays where arguments overlap."""
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    for i in range(8):
        x = A[i] * 3 % 5
        B[i] = x * x + x
""")
    assert isinstance(func, PrimFunc)
    assert "B[i] = x * x + x" in render(
        ast.Module([compile_kernel(func, "main").in_text_order], [])
    )
    memory = np.arange(9, dtype="int64")
    expected = memory.copy()
    for i in range(8):
        x = expected[i] * 3 % 5
        expected[i + 1] = x * x + x
    relaxpy.compile(IRModule({"main": func}), target="numpy")["main"](memory[:-1], memory[1:])
    np.testing.assert_array_equal(memory, expected)


DATA = """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64"), k: T.int64):
    for i in range(8):
        x = A[i]
        y = x * x % 9973 + x
        A[i] = y * y % 9973
        B[i] = (k * k % 9973 + i) * (k * k % 9973 + k) % 9973 // 7
"""


@pytest.mark.parametrize("target", TARGETS)
def test_remainders_of_data_are_not_multiplied_out(target: str) -> None:
    """As a polynomial of the values the expression would overflow 64 bits."""
    a, b, k = np.arange(8, dtype="int64") * 20_000_000, np.zeros(8, "int64"), 1_000_000_007
    numbers = [int(x) for x in a]
    relaxpy.compile(IRModule({"main": from_source(DATA)}), target=target)["main"](a, b, k)
    assert list(a) == [(x * x % 9973 + x) ** 2 % 9973 for x in numbers]
    assert list(b) == [(k * k % 9973 + i) * (k * k % 9973 + k) % 9973 // 7 for i in range(8)]


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_many_lets_need_no_deep_recursion(target: str) -> None:
    lets = "".join(
        f"    x{i + 1}: T.float32 = x{i} * T.float32(0.5) + A[{i}]\n" for i in range(350)
    )
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((351,), "float32"), B: T.Buffer((1,), "float32")):
    x0: T.float32 = A[350]
{lets}    B[0] = x350
""")
    values, found = np.linspace(0, 1, 351, dtype="float32"), np.zeros(1, "float32")
    relaxpy.compile(func, target)(values, found)
    expected = np.float64(values[350])
    for value in values[:350]:
        expected = expected * 0.5 + value
    np.testing.assert_allclose(found, expected, rtol=1e-6)
