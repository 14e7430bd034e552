"""Programs with dependences that are easily overlooked, compared with the reference."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy import te, tir
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel import compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.counting import calls
from tests.exec.kernel.support import check, load, methods


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


@T.prim_func
def halves_of_rows(A: T.Buffer((24,), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        if j < 4:
            A[4 * i + j] = B[i, j]
        else:
            B[i, j] = A[4 * i + j]


def test_digits_with_different_extents_in_two_statements_do_not_determine_a_number() -> None:
    check(halves_of_rows, numbers(24), numbers(4, 8))


@T.prim_func
def strided(
    A: T.Buffer((8,), "float32"),
    B: T.Buffer((4,), "float32"),
    C: T.Buffer((4,), "float32"),
    step: T.int64,
):
    for i in range(4):
        A[i * step] = B[i]
        C[i] = A[i * step]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_stride_may_be_zero(step: int) -> None:
    check(strided, numbers(8), numbers(4) * 3, numbers(4), step)


@T.prim_func
def condition_on_a_view(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32")):
    F = T.decl_buffer((6,), "float32", data=A.data)
    for i in range(6):
        if F[i] > T.float32(2):
            A[i] = T.float32(0)
            B[i] = T.float32(9)


@T.prim_func
def running_over_a_view(C: T.Buffer((7,), "float32")):
    V = T.decl_buffer((7,), "float32", data=C.data)
    for i in range(6):
        C[i + 1] = C[i] + V[i]


@T.prim_func
def start_overwritten_by_a_view(Y: T.Buffer((3,), "float32"), X: T.Buffer((3, 4), "float32")):
    V = T.decl_buffer((3,), "float32", data=Y.data)
    for i in range(3):
        Y[i] = T.float32(0)
    for i in range(3):
        V[i] = T.float32(5)
    for i, k in T.grid(3, 4):
        Y[i] = Y[i] + X[i, k]


@T.prim_func
def start_read_before_a_view_changes_it(
    Z: T.Buffer((3,), "float32"), X: T.Buffer((3, 4), "float32")
):
    V = T.decl_buffer((3,), "float32", data=Z.data)
    Y = T.alloc_buffer((3,), "float32")
    for i in range(3):
        Y[i] = Z[i]
    for i in range(3):
        V[i] = T.float32(5)
    for i, k in T.grid(3, 4):
        Y[i] = Y[i] + X[i, k]
    for i in range(3):
        Z[i] = Y[i]


@T.prim_func
def extreme_of_a_view(best: T.Buffer((6,), "float32"), place: T.Buffer((6,), "int64")):
    V = T.decl_buffer((6,), "float32", data=best.data)
    for k in range(6):
        if V[k] * T.float32(2) > best[3]:
            best[3] = V[k] * T.float32(2)
            place[0] = k


@T.prim_func
def later_rows_through_a_view(
    X: T.Buffer((40000, 6), "float32"),
    Y: T.Buffer((40000, 6), "float32"),
    Z: T.Buffer((40000, 3), "float32"),
):
    V = T.decl_buffer((40000, 3), "float32", data=Y.data, elem_offset=120000)
    for i, j in T.grid(40000, 6):
        Y[i, j] = T.exp(X[i, j]) * T.float32(2) + T.float32(1) + X[i, j]
    for i, j in T.grid(40000, 3):
        Z[i, j] = T.exp(-V[i, j]) + V[i, j] * T.float32(3)


@pytest.mark.parametrize(
    ("func", "shapes"),
    [
        (condition_on_a_view, [(6,), (6,)]),
        (running_over_a_view, [(7,)]),
        (start_overwritten_by_a_view, [(3,), (3, 4)]),
        (start_read_before_a_view_changes_it, [(3,), (3, 4)]),
    ],
)
def test_a_buffer_and_a_view_are_one_memory(func: PrimFunc, shapes: list[tuple[int, ...]]) -> None:
    check(func, *(numbers(*s) for s in shapes))


def test_rows_of_a_view_are_not_those_of_its_memory() -> None:
    x = np.linspace(-1, 1, 240000, dtype=np.float32).reshape(40000, 6)
    y, z = np.empty_like(x), np.empty((40000, 3), np.float32)
    load(later_rows_through_a_view)(x, y, z)
    later = y.reshape(-1)[120000:].reshape(40000, 3)
    np.testing.assert_allclose(z, np.exp(-later) + later * 3, rtol=1e-6)


def test_an_extreme_may_be_sought_in_its_own_memory() -> None:
    check(extreme_of_a_view, np.array([1, 7, 3, 2, 9, 8], np.float32), np.zeros(6, np.int64))


@T.prim_func
def bound_before(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    x: T.float32 = A[0]
    B[0] = T.float32(50)
    B[1] = x


@T.prim_func
def vectors(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    B[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)] + T.Broadcast(T.float32(1), 4)


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("func", [bound_before, vectors])
def test_loads_stay_before_stores_in_memory_that_overlaps(func: PrimFunc, offset: int) -> None:
    found = []
    for run in (load(func), lambda *args: run_prim_func(func, args)):
        memory = numbers(8)
        run(memory[:4], memory[offset : offset + 4])
        found.append(memory)
    np.testing.assert_array_equal(*found)


@T.prim_func
def vector_from_a_region(A: T.Buffer((8,), "float32")):
    with T.block("b"):
        R = T.match_buffer(A[1:5], (4,), "float32", offset_factor=1)
        R[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)]


def test_lanes_are_read_before_they_are_stored_through_a_matched_region() -> None:
    check(vector_from_a_region, numbers(8))


@T.prim_func
def is_number(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        if X[i] <= X[i]:
            Y[i] = T.float32(1)
        else:
            Y[i] = T.float32(2)


@T.prim_func
def has_a_successor(X: T.Buffer((4,), "int8"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        Y[i] = T.if_then_else(X[i] + T.int8(1) > X[i], T.float32(1), T.float32(2))


def test_laws_of_indices_do_not_apply_to_data() -> None:
    check(is_number, np.array([1, np.nan, 3, np.inf], np.float32), numbers(4))
    check(has_a_successor, np.array([1, 127, 3, -5], np.int8), numbers(4))


@T.prim_func
def scratch_in_a_loop(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    rest = T.alloc_buffer((n - 5,), "float32")
    for i in range(n - 5):
        rest[i] = A[i]
    for i in range(n - 5):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            row = T.alloc_buffer((4,), "float32")
            for j in range(4):
                row[j] = A[vi] + T.float32(1)
            B[vi] = row[3] + rest[vi]


@pytest.mark.parametrize("n", [0, 3, 5, 7])
def test_a_loop_with_a_negative_extent_has_no_iteration(n: int) -> None:
    check(scratch_in_a_loop, numbers(n), numbers(n))


@T.prim_func
def if_asked(
    X: T.Buffer((3, 4), "float32"), F: T.Buffer((1,), "float32"), Y: T.Buffer((3,), "float32")
):
    for i in range(3):
        Y[i] = T.float32(0)
    for i, k in T.grid(3, 4):
        if F[0] > T.float32(0):
            Y[i] = Y[i] + X[i, k]


@T.prim_func
def where_it_fits(x: T.handle, y: T.handle, g: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, 4), "float32")
    Y = T.match_buffer(y, (m,), "float32")
    G = T.match_buffer(g, (n,), "float32")
    for i in range(n):
        Y[i] = T.float32(7)
    for i, k in T.grid(n, 4):
        if G[i] > T.float32(2):
            Y[i] = Y[i] + X[i, k]


def test_an_initial_value_stays_if_a_condition_excludes_all_terms() -> None:
    check(if_asked, numbers(3, 4), numbers(1), numbers(3))
    check(if_asked, numbers(3, 4), -numbers(1), numbers(3))
    check(where_it_fits, numbers(3, 4), numbers(5), numbers(3))


@T.prim_func
def rows_of(
    P: T.Buffer((4,), "int64"), A: T.Buffer((6, 3), "float32"), B: T.Buffer((4, 3), "float32")
):
    for t in range(4):
        for j in range(3):
            A[t + 1, j] = A[P[t - 1], j] + B[t, j]


@T.prim_func
def stretches(
    P: T.Buffer((4,), "int64"), D: T.Buffer((9,), "float32"), Y: T.Buffer((4,), "float32")
):
    for i in range(4):
        Y[i] = T.float32(0)
        for k in range(P[i], P[i + 1]):
            Y[i] = Y[i] + D[k]


@pytest.mark.parametrize(
    ("func", "shapes", "index"), [(rows_of, [(6, 3), (4, 3)], -1), (stretches, [(9,), (4,)], 4)]
)
def test_an_index_that_is_read_outside_its_buffer_is_refused(
    func: PrimFunc, shapes: list[tuple[int, ...]], index: int
) -> None:
    with pytest.raises(RuntimeCheckError, match=f"index {index} is outside .* buffer P, .* size 4"):
        load(func)(np.arange(4), *(numbers(*s) for s in shapes))


@T.prim_func
def hashed(
    X: T.Buffer((5,), "uint32"),
    N: T.Buffer((5,), "int8"),
    A: T.Buffer((1000,), "float32"),
    Y: T.Buffer((5,), "float32"),
):
    for i in range(5):
        for k in range(T.Cast("int32", N[i] + N[i]) + 100):
            Y[i] = Y[i] + A[k]
        while Y[i] < T.float32(2):
            Y[i] = Y[i] + A[T.Cast("int32", X[i] * T.uint32(2654435761) % T.uint32(1000))]
            Y[i] = Y[i] + A[T.Cast("int32", T.Cast("uint8", i * 100))]
            Y[i] = Y[i] + A[T.Cast("int32", N[i] + N[i]) + 128]


def test_indices_from_memory_and_in_few_bits_wrap_as_they_are_computed() -> None:
    x = np.array([1, 2, 3, 4, 1000000], np.uint32)
    n = np.array([-50, -51, 100, -100, -60], np.int8)
    check(hashed, x, n, numbers(1000), np.zeros(5, np.float32))


@T.prim_func
def unsigned(
    A: T.Buffer((8,), "float32"),
    B: T.Buffer((8,), "float32"),
    C: T.Buffer((8,), "float32"),
    D: T.Buffer((8,), "float32"),
):
    for i in T.serial(T.uint32(0), T.uint32(8)):
        if i - T.uint32(5) > T.uint32(10):
            B[i] = A[i]
        C[T.min(i - T.uint32(3), T.uint32(7))] = A[i]
    for i in T.serial(T.uint64(1), T.uint64(8)):
        D[i] = D[i - T.uint64(1)] + T.Select(i - T.uint64(3) > T.uint64(4), A[i], T.float32(1))


def test_differences_without_sign_wrap_around() -> None:
    zeros = np.zeros((3, 8), np.float32)
    args = [numbers(8), *zeros]
    check(unsigned, *args)
    load(unsigned)(*args)
    assert (zeros[0] != 0).tolist() == [True] * 5 + [False] * 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_moving_bounds_agree_with_the_reference(data: st.DataObject) -> None:
    """Two stores in a loop whose bounds and indices depend on the enclosing loop."""
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    lines = []
    for loop, (target, source) in zip("jk", ("AB", "BA"), strict=True):
        start, width = f"{number(-1, 1)} * i + {number(4, 8)}", number(1, 3)
        where = f"{number(0, 2)} * i + {loop} + {number(0, 3)}"
        read = f"{number(0, 2)} * i + {loop} + {number(0, 3)}"
        lines += [
            f"        for {loop} in range({start}, {start} + {width}):",
            f"            {target}[{where}] = {source}[{read}] * T.float32(0.5) + T.float32(i)",
        ]
    if data.draw(st.booleans()):  # both in one loop
        lines = [lines[0], lines[1], lines[3].replace("k", "j")]
    text = "\n".join(
        [
            "@T.prim_func",
            'def f(A: T.Buffer((48,), "float32"), B: T.Buffer((48,), "float32")):',
            f"    for i in range({number(1, 6)}):",
            *lines,
        ]
    )
    func = from_source(text)
    assert isinstance(func, PrimFunc)
    check(func, numbers(48), numbers(48) * 3)


def side_by_side(count: int, *, symbolic: bool) -> PrimFunc:
    """A loop with `count` stores into disjoint ranges of one buffer, and one that reads."""
    n, size = ("n", "n = T.int64()") if symbolic else ("4", "pass")
    lines = [
        "@T.prim_func",
        "def f(a: T.handle, b: T.handle, c: T.handle):",
        f"    {size}",
        f'    A = T.match_buffer(a, ({n},), "float32")',
        f'    B = T.match_buffer(b, ({n} * {count},), "float32")',
        f'    C = T.match_buffer(c, ({n} * {count},), "float32")',
    ]
    lines.append(f"    for i in range({n}):")
    lines += [f"        B[i + {n} * {k}] = A[i] * T.float32({k})" for k in range(count)]
    lines += [f"    for i in range({n} * {count}):", "        C[i] = B[i] + T.float32(1)"]
    found = from_source("\n".join(lines))
    assert isinstance(found, PrimFunc)
    return found


@T.prim_func
def one_iteration_of_the_outer(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(6):
        for j in range(i + 2):
            for k in range(j, j + 1):
                if i == 1:
                    B[j + k] = A[j] + i


@T.prim_func
def all_of_one_iteration(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(2, 3):
        for j in range(i, i + 1):
            for k in range(j, 5):
                B[k] = A[k] + j


@pytest.mark.parametrize("func", [one_iteration_of_the_outer, all_of_one_iteration])
def test_bounds_use_the_one_iteration_that_is_left_of_a_loop(func: PrimFunc) -> None:
    check(func, np.arange(8, dtype="int32"), np.zeros(8, "int32"))


@pytest.mark.parametrize("symbolic", [False, True])
def test_disjoint_stores_are_compared_with_their_neighbours(symbolic: bool) -> None:
    check(side_by_side(5, symbolic=symbolic), numbers(4), numbers(20), numbers(20))
    assert set(methods(side_by_side(5, symbolic=symbolic))) == {"elementwise"}
    few, many = (
        calls(partial(compile_kernel, side_by_side(count, symbolic=symbolic), "kernel"))
        for count in (40, 80)
    )
    assert many < 2.5 * few


def windows(count: int) -> PrimFunc:
    """A loop with `count` statements on three elements each, two of them shared with the next."""
    steps = "".join(
        f"        for i in range(3):\n            A[{k} + i] = A[{k} + i] * 2 + {k}\n"
        for k in range(count)
    )
    argument = f"A: T.Buffer(({count + 2},), 'float32')"
    return from_source(f"@T.prim_func\ndef main({argument}):\n    for t in range(2):\n{steps}")


def test_stores_that_overlap_in_a_row_are_compared_with_their_neighbours() -> None:
    check(windows(6), numbers(8))
    few, many = (calls(partial(compile_kernel, windows(count), "kernel")) for count in (40, 80))
    assert many < 2.5 * few


def columns_from_one(count: int) -> PrimFunc:
    """A loop with `count` statements that read the same elements."""
    steps = "".join(f"        B[i, {k}] = A[i] * {k}\n" for k in range(count))
    return from_source(
        "@T.prim_func\ndef main(A: T.Buffer((4,), 'int32'), "
        f"B: T.Buffer((4, {count}), 'int32')):\n    for i in range(4):\n{steps}"
    )


def test_elements_that_are_only_read_are_not_compared() -> None:
    few, many = (calls(partial(compile_kernel, columns_from_one(k), "kernel")) for k in (40, 80))
    assert many < 2.5 * few


def test_a_sum_of_many_arrays_needs_no_deep_recursion() -> None:
    def added(count: int) -> PrimFunc:
        arrays = [te.placeholder((4,), "float32", f"x{k}") for k in range(count)]

        def total(i: tir.Var) -> tir.PrimExpr:
            found = arrays[0][i]
            for array in arrays[1:]:
                found = found + array[i]
            return found

        return te.create_prim_func([*arrays, te.compute((4,), total)])

    check(added(200), *(numbers(4) * k for k in range(200)), numbers(4))
    few, many = (calls(partial(compile_kernel, added(k), "kernel")) for k in (50, 100))
    assert many < 4 * few
