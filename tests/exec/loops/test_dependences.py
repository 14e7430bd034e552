"""Programs with dependences that are easily overlooked, compared with the reference."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy import te, tir
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.counting import calls
from tests.exec.loops.support import check, load, methods
from tests.exec.loops.written import kernel, numbers, run_row
from tests.rows import sections

DEPENDENCES = sections("""
--- an element that is read, stored and read again has the value of its iteration
def f(A: f32[1], B: f32[4], C: f32[4], D: f32[4]):
    for i in range(4):
        B[i] = A[0]
        A[0] = C[i] * T.float32(2)
        D[i] = A[0]
--- a number with one more digit is that of other digits
def f(A: f32[16], B: f32[3, 4], C: f32[3, 4, 2]):
    for i, j in T.grid(3, 4):
        A[4 * i + j] = B[i, j]
        for k in range(2):
            C[i, j, k] = A[4 * i + j + 2 * k]
--- ranges begin at a number that is not known
def f(A: f32[9], B: f32[9], n: T.int64):
    for i in range(n, 8):
        A[i] = B[i] * T.float32(2)
        B[i] = A[i + 1]
        A[i - 1] = B[i + 1]
# args: n=1
# args: n=5
--- digits with different extents in two statements do not determine a number
def f(A: f32[24], B: f32[4, 8]):
    for i, j in T.grid(4, 8):
        if j < 4:
            A[4 * i + j] = B[i, j]
        else:
            B[i, j] = A[4 * i + j]
--- a stride may be zero
def f(A: f32[8], B: f32[4], C: f32[4], step: T.int64):
    for i in range(4):
        A[i * step] = B[i]
        C[i] = A[i * step]
# args: step=0
# args: step=1
# args: step=2
--- a condition on a view
def f(A: f32[6], B: f32[6]):
    F = T.decl_buffer((6,), "float32", data=A.data)
    for i in range(6):
        if F[i] > T.float32(2):
            A[i] = T.float32(0)
            B[i] = T.float32(9)
# args: A=numbers(6)
--- what is ahead in one dimension and behind in another is another element
def f(A: f32[n * 2 + 1, n * 2 + 1], B: f32[n]):
    for i in range(n):
        A[i + n + 1, i] = B[i]
        B[i] = A[i, i + n + 1]
# args: A=numbers(9, 9), B=numbers(4)
# whole: in one step
--- a running sum over a view
def f(C: f32[7]):
    V = T.decl_buffer((7,), "float32", data=C.data)
    for i in range(6):
        C[i + 1] = C[i] + V[i]
--- the start of a sum is overwritten by a view
def f(Y: f32[3], X: f32[3, 4]):
    V = T.decl_buffer((3,), "float32", data=Y.data)
    for i in range(3):
        Y[i] = T.float32(0)
    for i in range(3):
        V[i] = T.float32(5)
    for i, k in T.grid(3, 4):
        Y[i] = Y[i] + X[i, k]
--- the start of a sum is read before a view changes it
def f(Z: f32[3], X: f32[3, 4]):
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
--- an extreme may be sought in its own memory
def f(best: f32[6], place: i64[6]):
    V = T.decl_buffer((6,), "float32", data=best.data)
    for k in range(6):
        if V[k] * T.float32(2) > best[3]:
            best[3] = V[k] * T.float32(2)
            place[0] = k
# args: best=np.float32([1, 7, 3, 2, 9, 8])
--- a bound load stays before stores in memory that overlaps
def f(A: f32[4], B: f32[4]):
    x: T.float32 = A[0]
    B[0] = T.float32(50)
    B[1] = x
# memory: 8: m[:4], m[0:4]
# memory: 8: m[:4], m[1:5]
# memory: 8: m[:4], m[2:6]
# memory: 8: m[:4], m[3:7]
--- the lanes of a load stay before stores in memory that overlaps
def f(A: f32[4], B: f32[4]):
    B[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)] + T.Broadcast(T.float32(1), 4)
# memory: 8: m[:4], m[0:4]
# memory: 8: m[:4], m[1:5]
# memory: 8: m[:4], m[2:6]
# memory: 8: m[:4], m[3:7]
--- lanes are read before they are stored through a matched region
def f(A: f32[8]):
    with T.block("b"):
        R = T.match_buffer(A[1:5], (4,), "float32", offset_factor=1)
        R[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)]
--- a law of indices does not apply to data: a number equals itself
def f(X: f32[4], Y: f32[4]):
    for i in range(4):
        if X[i] <= X[i]:
            Y[i] = T.float32(1)
        else:
            Y[i] = T.float32(2)
# args: X=np.float32([1, np.nan, 3, np.inf])
--- a law of indices does not apply to data: a successor is greater
def f(X: i8[4], Y: f32[4]):
    for i in range(4):
        Y[i] = T.if_then_else(X[i] + T.int8(1) > X[i], T.float32(1), T.float32(2))
# args: X=np.int8([1, 127, 3, -5])
--- a loop with a negative extent has no iteration
def f(A: f32[n], B: f32[n]):
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
# args: n=0
# args: n=3
# args: n=5
# args: n=7
--- an initial value stays if a condition excludes all terms
def f(X: f32[3, 4], F: f32[1], Y: f32[3]):
    for i in range(3):
        Y[i] = T.float32(0)
    for i, k in T.grid(3, 4):
        if F[0] > T.float32(0):
            Y[i] = Y[i] + X[i, k]
# args: F=numbers(1)
# args: F=-numbers(1)
--- an initial value stays where a condition excludes all terms of a row
def f(X: f32[n, 4], Y: f32[m], G: f32[n]):
    for i in range(n):
        Y[i] = T.float32(7)
    for i, k in T.grid(n, 4):
        if G[i] > T.float32(2):
            Y[i] = Y[i] + X[i, k]
# args: n=3, m=5, G=numbers(3)
--- an index of a row is read outside its buffer
def f(P: i64[4], A: f32[6, 3], B: f32[4, 3]):
    for t in range(4):
        for j in range(3):
            A[t + 1, j] = A[P[t - 1], j] + B[t, j]
# args: P=np.arange(4) -> index -1 is outside .* buffer P, .* size 4
--- the end of a loop is read outside its buffer
def f(P: i64[4], D: f32[9], Y: f32[4]):
    for i in range(4):
        Y[i] = T.float32(0)
        for k in range(P[i], P[i + 1]):
            Y[i] = Y[i] + D[k]
# args: P=np.arange(4) -> index 4 is outside .* buffer P, .* size 4
--- indices from memory and in few bits wrap as they are computed
def f(X: u32[5], N: i8[5], A: f32[1000], Y: f32[5]):
    for i in range(5):
        for k in range(T.Cast("int32", N[i] + N[i]) + 100):
            Y[i] = Y[i] + A[k]
        while Y[i] < T.float32(2):
            Y[i] = Y[i] + A[T.Cast("int32", X[i] * T.uint32(2654435761) % T.uint32(1000))]
            Y[i] = Y[i] + A[T.Cast("int32", T.Cast("uint8", i * 100))]
            Y[i] = Y[i] + A[T.Cast("int32", N[i] + N[i]) + 128]
# args: X=np.uint32([1, 2, 3, 4, 10**6]), N=np.int8([-50, -51, 100, -100, -60]), A=numbers(1000),
#   Y=np.zeros(5, "float32")
--- bounds use the one iteration that is left of the outer loop
def f(A: i32[8], B: i32[8]):
    for i in range(6):
        for j in range(i + 2):
            for k in range(j, j + 1):
                if i == 1:
                    B[j + k] = A[j] + i
--- bounds use the one iteration of each loop
def f(A: i32[8], B: i32[8]):
    for i in range(2, 3):
        for j in range(i, i + 1):
            for k in range(j, 5):
                B[k] = A[k] + j
""")


@pytest.mark.parametrize("fact", DEPENDENCES)
def test_dependences_that_are_easily_overlooked(fact: str) -> None:
    run_row(DEPENDENCES[fact])


def test_rows_of_a_view_are_not_those_of_its_memory() -> None:
    later_rows_through_a_view = kernel("""
def f(X: f32[40000, 6], Y: f32[40000, 6], Z: f32[40000, 3]):
    V = T.decl_buffer((40000, 3), "float32", data=Y.data, elem_offset=120000)
    for i, j in T.grid(40000, 6):
        Y[i, j] = T.exp(X[i, j]) * T.float32(2) + T.float32(1) + X[i, j]
    for i, j in T.grid(40000, 3):
        Z[i, j] = T.exp(-V[i, j]) + V[i, j] * T.float32(3)
""")
    x = np.linspace(-1, 1, 240000, dtype=np.float32).reshape(40000, 6)
    y, z = np.empty_like(x), np.empty((40000, 3), np.float32)
    load(later_rows_through_a_view)(x, y, z)
    later = y.reshape(-1)[120000:].reshape(40000, 3)
    np.testing.assert_allclose(z, np.exp(-later) + later * 3, rtol=1e-6)


def test_differences_without_sign_wrap_around() -> None:
    unsigned = kernel("""
def f(A: f32[8], B: f32[8], C: f32[8], D: f32[8]):
    for i in T.serial(T.uint32(0), T.uint32(8)):
        if i - T.uint32(5) > T.uint32(10):
            B[i] = A[i]
        C[T.min(i - T.uint32(3), T.uint32(7))] = A[i]
    for i in T.serial(T.uint64(1), T.uint64(8)):
        D[i] = D[i - T.uint64(1)] + T.Select(i - T.uint64(3) > T.uint64(4), A[i], T.float32(1))
""")
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
