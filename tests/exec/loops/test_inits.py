"""A block is initialised in the first iteration of its reduction, or if that has no iteration."""

import textwrap

import numpy as np
import pytest

from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.exec.loops.support import check, load
from tests.exec.loops.written import kernel, numbers, run_row
from tests.rows import sections

#: Sums of the rows of X in Y, with an init that is seen wherever it is stored.
PROGRAMS = sections("""
--- split
def f(X: f32[3, m], Y: f32[3]):
    for i, k0, k1 in T.grid(3, (m + 3) // 4, 4):
        with T.block("sum"):
            T.where(k0 * 4 + k1 < m)
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
--- split, the outer half outside
def f(X: f32[3, m], Y: f32[3]):
    for k0, i, k1 in T.grid((m + 3) // 4, 3, 4):
        with T.block("sum"):
            T.where(k0 * 4 + k1 < m and i < 2)
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
--- initialised four times
def f(X: f32[3, m], Y: f32[3]):
    for i, f in T.grid(3, m * 4):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj]
--- fused, outside
def f(X: f32[3, m], Y: f32[3]):
    for f, i in T.grid(m * 4, 3):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj] * T.Cast("float32", vk)
--- fused, without the last iterations
def f(X: f32[3, m], Y: f32[3]):
    for i, f in T.grid(3, m * 8):
        with T.block("sum"):
            T.where(f < m * 4 - 4)
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj] * T.Cast("float32", vk)
--- triangle
def f(X: f32[3, m], Y: f32[3]):
    for i, k0 in T.grid(3, m):
        for k1 in range(k0, m):
            with T.block("sum"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.reduce(m, k0)
                vk = T.axis.reduce(m, k1)
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vj] * X[vi, vk]
--- masked by what it reads
def f(X: f32[3, m], Y: f32[3]):
    for i, k in SR(3, m):
        T.where(X[i, k] < T.float32(5))
        with T.init():
            Y[vi] = T.float32(100)
        Y[vi] = Y[vi] + X[vi, vk]
--- masked by what it overwrites
def f(X: f32[3, m], Y: f32[3]):
    for i, k in SR(3, m):
        T.where(Y[i] > T.float32(1))
        with T.init():
            Y[vi] = T.float32(100)
        Y[vi] = Y[vi] + X[vi, vk]
--- initialised in each row
def f(X: f32[3, m], Y: f32[3]):
    for i, k in SR(3, m):
        with T.init():
            Y[0] = Y[0] * T.float32(2)
        Y[(vi * m + vk) % 3] = Y[(vi * m + vk) % 3] + X[0, 0]
--- init alone
def f(X: f32[3, m], Y: f32[3]):
    for i, k in SR(3, m):
        with T.init():
            Y[vi] = T.float32(100)
        T.evaluate(0)
--- conditions that never hold
def f(X: f32[3, m], Y: f32[3]):
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
--- beside another block
def f(X: f32[3, m], Y: f32[3]):
    for i, k in T.grid(3, m):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
        with T.block("copy"):
            vi, vk = T.axis.remap("SS", [i, k])
            X[vi, vk] = Y[vi] * T.float32(2)
--- beside what other iterations start
def f(X: f32[3, m], Y: f32[3]):
    for k, i in RS(m, 3):
        with T.init():
            Y[vi] = T.float32(100)
        Y[vi] = Y[vi] + X[vi, vk] * Y[(vi + 1) % 3]
--- from what the block changes after its sum
def f(X: f32[3, m], Y: f32[3]):
    C = T.alloc_buffer((1,))
    C[0] = T.float32(3)
    for k, i in T.grid(m, 3):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = C[0]
            Y[vi] = Y[vi] + X[vi, vk]
            C[0] = C[0] + Y[vi]
--- in a loop that ends before it
def f(X: f32[3, m], Y: f32[3]):
    for k, i in T.grid(m, 3):
        if i == 2:
            break
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
--- in a loop whose length another block changes
def f(X: f32[3, m], Y: f32[3]):
    C = T.alloc_buffer((1,), "int32")
    C[0] = 3
    for k in range(m):
        for i in range(C[0]):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
        for i in range(1):
            C[0] = C[0] - 1 - C[0] % 2
--- in a loop whose length was changed before it
def f(X: f32[3, m], Y: f32[3]):
    C = T.alloc_buffer((1,), "int32")
    C[0] = 1
    for k in range(m):
        C[0] = T.min(C[0] + 1, 3)
        for i in range(C[0]):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
--- with an init inside of its init
def f(X: f32[3, m], Y: f32[3]):
    for k, i in T.grid(m, 3):
        with T.block("outer"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                for j in range(2):
                    with T.block("inner"):
                        vj = T.axis.reduce(2, j)
                        with T.init():
                            Y[vi] = T.float32(100)
                        Y[vi] = Y[vi] + T.float32(1)
            Y[vi] = Y[vi] + X[vi, vk]
--- with a loop of unknown length in its init
def f(X: f32[3, m], Y: f32[3]):
    for k, i in T.grid(m, 3):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(1)
                while Y[vi] < T.float32(90):
                    for j in range(2):
                        Y[vi] = Y[vi] * T.float32(2) + T.Cast("float32", j)
            Y[vi] = Y[vi] + X[vi, vk]
--- from what the block changes
def f(X: f32[3, m], Y: f32[3]):
    for k, i in RS(m, 3):
        with T.init():
            Y[vi] = Y[0] * T.float32(2)
        Y[vi] = Y[vi] + X[vi, vk]
--- after a use
def f(X: f32[3, m], Y: f32[3]):
    for i, k in T.grid(3, m):
        with T.block("copy"):
            vi, vk = T.axis.remap("SS", [i, k])
            X[vi, vk] = Y[vi] * T.float32(2)
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
--- after a store
def f(X: f32[3, m], Y: f32[3]):
    for i, k in T.grid(3, m):
        with T.block("other"):
            vi, vk = T.axis.remap("SS", [i, k])
            Y[vi] = X[vi, vk]
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
--- under conditions
def f(X: f32[3, m], Y: f32[3]):
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
--- nested init
def f(X: f32[3, m], Y: f32[3]):
    for k in R(m):
        with T.init():
            for i in S(3):
                Y[vi] = T.float32(100)
        for i in S(3):
            Y[vi] = Y[vi] + X[vi, vk]
--- before a return
def f(X: f32[3, m], Y: f32[3]) -> T.int32:
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
--- beside a view of its result
def f(X: f32[3, m], Y: f32[3]):
    V = T.decl_buffer((3,), "float32", data=Y.data, elem_offset=2, strides=[-1])
    for k, i in T.grid(m, 3):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vk]
        with T.block("view"):
            vi, vk = T.axis.remap("SS", [i, k])
            X[vi, vk] = V[vi]
--- in a loop of unknown length
def f(X: f32[3, m], Y: f32[3]):
    P = T.alloc_buffer((1,), "int32")
    P[0] = 0
    while P[0] < 2:
        P[0] = P[0] + 1
        for i, k in T.grid(3, m):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
""")
ROWS_OF_4 = 'X = T.match_buffer(x, (3, 4), "float32")\nY = T.match_buffer(y, (3,), "float32")\n'
BY_AXIS = 'vi, vk = T.axis.remap("SR", [i, k])'


def nest(loops: str, block: str, params: str = "") -> PrimFunc:
    """One block under the loops `loops`, over X of 3 rows of 4, and Y of three sums."""
    body = f"{ROWS_OF_4}for {loops}:\n{textwrap.indent(block, '    ')}"
    head = f"@T.prim_func\ndef kernel(x: T.handle, y: T.handle{params}):\n"
    func = from_source(head + textwrap.indent(body, "    "))
    assert isinstance(func, PrimFunc)
    return func


def block(iters: str, where: str = "", *, term: str = "X[vi, vk]") -> str:
    """A block that adds `term` to its target, begun by an init."""
    guard = f"T.where({where})\n" if where else ""
    init = "with T.init():\n    Y[vi] = T.float32(100)\n"
    lines = f"{guard}{iters}\n{init}Y[vi] = Y[vi] + {term}\n"
    return 'with T.block("sum"):\n' + textwrap.indent(lines, "    ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_block_is_initialised_once(name: str) -> None:
    """Also in memory that overlaps."""
    apart = [f"# args: m={m}, X=numbers(3, {m}), Y=numbers(3)\n" for m in (0, 1, 3, 6)]
    within = [f"# memory: 12: m[: 3 * {m}].reshape(3, {m}), m[1:4]\n" for m in (0, 1, 3)]
    run_row("".join((PROGRAMS[name], *apart, *within)))


def test_a_fused_reduction_is_initialised_once() -> None:
    run_row("""
def f(X: f32[3, m, 4], Y: f32[3]):
    for i, f in T.grid(3, m * 4):
        with T.block("sum"):
            vi = T.axis.spatial(3, i)
            vj = T.axis.reduce(m, f // 4)
            vk = T.axis.reduce(4, f % 4)
            with T.init():
                Y[vi] = T.float32(100)
            Y[vi] = Y[vi] + X[vi, vj, vk]
# args: m=0
# args: m=1
# args: m=3
# methods: add reduction over f, f
""")


def test_a_first_iteration_that_a_condition_excludes_initialises_nothing() -> None:
    later_than_the_start = nest("i, k in T.grid(3, 4)", block(BY_AXIS, "k >= 1"))
    check(later_than_the_start, numbers(3, 4), numbers(3))
    up_to = nest("i, k in T.grid(3, 4)", block(BY_AXIS, "k < end"), ", end: T.int64")
    for end in (0, 2, 9):
        check(up_to, numbers(3, 4), numbers(3), end)
    actual = numbers(3)
    load(up_to)(numbers(3, 4), actual, 0)
    np.testing.assert_array_equal(actual, numbers(3))


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("split", 100),
        ("split, the outer half outside", 3),
        ("beside another block", 100),
        ("masked by what it reads", 100),
        ("nested init", 100),
    ],
)
def test_an_empty_sum_is_its_initial_value(name: str, last: int) -> None:
    actual = numbers(3)
    load(kernel(PROGRAMS[name]))(numbers(3, 0), actual)
    assert actual.tolist() == [100, 100, last]


@pytest.mark.parametrize(("start", "expected"), [(0, 100), (3, 1)])
@pytest.mark.parametrize("where", ["T.where({})", "if {}:"])
def test_a_condition_is_asked_only_of_the_iteration_that_would_be_the_first(where, start, expected):
    test = f"X[0, j] <= T.float32({start} % 3 + 1)"
    lines = block("vj = T.axis.reduce((s, s + 9), j)\nvk = T.axis.reduce(m, k)", term="X[vk, vj]")
    lines = lines.replace("Y[vi]", "Y[0]")
    if where.startswith("T"):
        lines = lines.replace("vj = T", f"{where.format(test)}\n    vj = T", 1)
    else:
        lines = f"{where.format(test)}\n{textwrap.indent(lines, '    ')}"
    # X has four columns, so that the condition has no value in most iterations.
    inner = f"for k in range(m):\n{textwrap.indent(lines, '    ')}"
    func = nest("j in range(s, s + 9)", inner, ", s: T.int64, m: T.int64")
    check(func, numbers(3, 4), numbers(3), start, 0)
    actual = numbers(3)
    load(func)(numbers(3, 4), actual, start, 0)
    assert actual.tolist() == [expected, 2, 3]


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("params", [", m: T.int64", ", m: T.int32"])
@pytest.mark.parametrize(
    ("loops", "bindings", "expected"),
    [
        ("i in range(T.int64(1) * m)", ("(1, i // m)", "(m, i % m)"), [100, 2, 3]),
        ("i in range(m)", ("(m, i + 1)",), [100, 2, 3]),
        ("j, i in T.grid(2, m)", ("(m, (i + j) // m)", "(m, i)"), [100, 2, 3]),
        ("i, j in T.grid(m, 2)", ("(m, (i + j) // m)", "(m, i)"), [100, 2, 3]),
    ],
)
def test_bindings_that_mention_a_loop_without_iterations_are_not_evaluated(
    loops: str, bindings: tuple[str, ...], expected: list[int], params: str
) -> None:
    axes = "\n".join(f"v{k} = T.axis.reduce{b}" for k, b in enumerate(bindings))
    func = nest(loops, block(axes, term="X[0, 0]").replace("Y[vi]", "Y[0]"), params)
    check(func, numbers(3, 4), numbers(3), 0)
    actual = numbers(3)
    load(func)(numbers(3, 4), actual, 0)
    assert actual.tolist() == expected


def test_a_sum_that_reads_its_result_elsewhere_begins_in_memory() -> None:
    lines = block("vi = T.axis.spatial(m, i)\nvk = T.axis.reduce(n, k)", "k < 1", term="Y[vk] + 5")
    func = nest("i, k in T.grid(m, n)", lines, ", m: T.int64, n: T.int64")
    for rows, terms in ((1, 1), (2, 1), (3, 3), (3, 0)):
        check(func, numbers(3, 4), numbers(3), rows, terms)
    actual = numbers(3)
    load(func)(numbers(3, 4), actual, 2, 2)
    assert actual.tolist() == [205, 310, 3]
