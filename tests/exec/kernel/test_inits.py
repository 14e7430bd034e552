"""A block is initialised in the first iteration of its reduction, or if that has no iteration."""

import textwrap
from collections.abc import Callable

import numpy as np
import pytest

from relaxpy.exec.compile import compile
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source
from tests.exec.kernel.support import check, load, methods

DYNAMIC = """
m = T.int64()
X = T.match_buffer(x, (3, m), "float32")
Y = T.match_buffer(y, (3,), "float32")
"""
THREE_DIMENSIONS = DYNAMIC.replace("(3, m)", "(3, m, 4)")
ROWS_OF_8 = DYNAMIC.replace("(3, m)", "(3, 8)").replace("m = T.int64()\n", "")
ROWS_OF_4 = ROWS_OF_8.replace("8", "4")
BY_AXIS = 'vi, vk = T.axis.remap("SR", [i, k])'
SPLIT = "vi = T.axis.spatial(3, i)\nvk = T.axis.reduce(m, k0 * 4 + k1)"
FUSED = "vi = T.axis.spatial(3, i)\nvj = T.axis.reduce(m, f // 4)\nvk = T.axis.reduce(4, f % 4)"


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def kernel(body: str, buffers: str = DYNAMIC, result: str = "", params: str = "") -> PrimFunc:
    """A function of the buffers X, which it reads, and Y, of three sums."""
    head = f"@T.prim_func\ndef kernel(x: T.handle, y: T.handle{params}){result}:\n"
    func = from_source(head + textwrap.indent(buffers + textwrap.dedent(body), "    "))
    assert isinstance(func, PrimFunc)
    return func


def block(
    iters: str,
    where: str = "",
    *,
    term: str = "X[vi, vk]",
    init: str = "Y[vi] = T.float32(100)",
    target: str = "Y[vi]",
) -> str:
    """A block that adds `term` to its target, begun by `init`."""
    guard = f"T.where({where})\n" if where else ""
    lines = f"{guard}{iters}\nwith T.init():\n    {init}\n{target} = {target} + {term}\n"
    return 'with T.block("sum"):\n' + textwrap.indent(lines, "    ")


def nest(loops: str, block: str, buffers: str = DYNAMIC, params: str = "") -> PrimFunc:
    """One block under the loops `loops`."""
    body = f"for {loops}:\n{textwrap.indent(block, '    ')}"
    return kernel(body, buffers, params=params)


ROWS = "i, k in T.grid(3, m)"

PROGRAMS = {
    "split": nest("i, k0, k1 in T.grid(3, (m + 3) // 4, 4)", block(SPLIT, where="k0 * 4 + k1 < m")),
    "split, the outer half outside": nest(
        "k0, i, k1 in T.grid((m + 3) // 4, 3, 4)", block(SPLIT, where="k0 * 4 + k1 < m and i < 2")
    ),
    "initialised four times": nest(
        "i, f in T.grid(3, m * 4)",
        block("vi = T.axis.spatial(3, i)\nvj = T.axis.reduce(m, f // 4)", term="X[vi, vj]"),
    ),
    "fused, outside": nest(
        "f, i in T.grid(m * 4, 3)", block(FUSED, term='X[vi, vj] * T.Cast("float32", vk)')
    ),
    "fused, without the last iterations": nest(
        "i, f in T.grid(3, m * 8)",
        block(FUSED, where="f < m * 4 - 4", term='X[vi, vj] * T.Cast("float32", vk)'),
    ),
    "triangle": kernel(
        """
        for i, k0 in T.grid(3, m):
            for k1 in range(k0, m):
                with T.block("sum"):
                    vi = T.axis.spatial(3, i)
                    vj = T.axis.reduce(m, k0)
                    vk = T.axis.reduce(m, k1)
                    with T.init():
                        Y[vi] = T.float32(100)
                    Y[vi] = Y[vi] + X[vi, vj] * X[vi, vk]
        """
    ),
    "masked by what it reads": nest(ROWS, block(BY_AXIS, where="X[i, k] < T.float32(5)")),
    "masked by what it overwrites": nest(ROWS, block(BY_AXIS, where="Y[i] > T.float32(1)")),
    "initialised in each row": nest(
        ROWS,
        block(
            BY_AXIS,
            term="X[0, 0]",
            init="Y[0] = Y[0] * T.float32(2)",
            target="Y[(vi * m + vk) % 3]",
        ),
    ),
    "init alone": kernel(
        """
        for i, k in T.grid(3, m):
            with T.block("nothing"):
                vi, _vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                T.evaluate(0)
        """
    ),
    "conditions that never hold": kernel(
        """
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
        """
    ),
    "beside another block": kernel(
        """
        for i, k in T.grid(3, m):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
            with T.block("copy"):
                vi, vk = T.axis.remap("SS", [i, k])
                X[vi, vk] = Y[vi] * T.float32(2)
        """
    ),
    "beside what other iterations start": kernel(
        """
        for k, i in T.grid(m, 3):
            with T.block("sum"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk] * Y[(vi + 1) % 3]
        """
    ),
    "from what the block changes": kernel(
        """
        for k, i in T.grid(m, 3):
            with T.block("sum"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    Y[vi] = Y[0] * T.float32(2)
                Y[vi] = Y[vi] + X[vi, vk]
        """
    ),
    "after a use": kernel(
        """
        for i, k in T.grid(3, m):
            with T.block("copy"):
                vi, vk = T.axis.remap("SS", [i, k])
                X[vi, vk] = Y[vi] * T.float32(2)
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
        """
    ),
    "after a store": kernel(
        """
        for i, k in T.grid(3, m):
            with T.block("other"):
                vi, vk = T.axis.remap("SS", [i, k])
                Y[vi] = X[vi, vk]
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(100)
                Y[vi] = Y[vi] + X[vi, vk]
        """
    ),
    "under conditions": kernel(
        """
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
        """
    ),
    "nested init": kernel(
        """
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
        """
    ),
    "before a return": kernel(
        """
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
        """,
        result=" -> T.int32",
    ),
}
ALL_PROGRAMS = pytest.mark.parametrize("func", PROGRAMS.values(), ids=list(PROGRAMS))


@pytest.mark.parametrize("m", [0, 1, 3, 6])
@ALL_PROGRAMS
def test_a_block_is_initialised_once(func: PrimFunc, m: int) -> None:
    check(func, numbers(3, m), numbers(3))


@pytest.mark.parametrize("m", [0, 1, 3])
def test_a_fused_reduction_is_initialised_once(m: int) -> None:
    fused = nest("i, f in T.grid(3, m * 4)", block(FUSED, term="X[vi, vj, vk]"), THREE_DIMENSIONS)
    check(fused, numbers(3, m, 4), numbers(3))
    assert methods(fused) == ["add reduction over f, f"]


@pytest.mark.parametrize("m", [0, 1, 3])
@ALL_PROGRAMS
def test_a_block_is_initialised_in_memory_that_overlaps(func: PrimFunc, m: int) -> None:
    base = numbers(12)

    def arguments(memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return memory[: 3 * m].reshape(3, m), memory[1:4]

    expected = run(func, arguments, base, "reference")
    np.testing.assert_array_equal(run(func, arguments, base, "numpy"), expected)


def run(
    func: PrimFunc,
    arguments: Callable[[np.ndarray], tuple[np.ndarray, ...]],
    base: np.ndarray,
    target: str,
) -> np.ndarray:
    memory = base.copy()
    compile(func, target)[func.attrs["global_symbol"]](*arguments(memory))
    return memory


def test_a_first_iteration_that_a_condition_excludes_initialises_nothing() -> None:
    later_than_the_start = nest("i, k in T.grid(3, 4)", block(BY_AXIS, "k >= 1"), ROWS_OF_4)
    check(later_than_the_start, numbers(3, 4), numbers(3))
    up_to = nest(
        "i, k in T.grid(3, 4)", block(BY_AXIS, "k < end"), ROWS_OF_4, params=", end: T.int64"
    )
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
    load(PROGRAMS[name])(numbers(3, 0), actual)
    assert actual.tolist() == [100, 100, last]


@pytest.mark.parametrize(("start", "expected"), [(0, 100), (3, 1)])
@pytest.mark.parametrize("where", ["T.where({})", "if {}:"])
def test_a_condition_is_asked_only_of_the_iteration_that_would_be_the_first(
    where: str, start: int, expected: int
) -> None:
    test = f"X[0, j] <= T.float32({start} % 3 + 1)"
    lines = block("vj = T.axis.reduce((s, s + 9), j)\nvk = T.axis.reduce(m, k)", term="X[vk, vj]")
    lines = lines.replace("Y[vi]", "Y[0]")
    if where.startswith("T"):
        lines = lines.replace("vj = T", f"{where.format(test)}\n    vj = T", 1)
    else:
        lines = f"{where.format(test)}\n{textwrap.indent(lines, '    ')}"
    # X has four columns, so that the condition has no value in most iterations.
    body = f"for j in range(s, s + 9):\n    for k in range(m):\n{textwrap.indent(lines, ' ' * 8)}"
    func = kernel(body, ROWS_OF_4, params=", s: T.int64, m: T.int64")
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
    func = nest(loops, block(axes, term="X[0, 0]").replace("Y[vi]", "Y[0]"), ROWS_OF_4, params)
    check(func, numbers(3, 4), numbers(3), 0)
    actual = numbers(3)
    load(func)(numbers(3, 4), actual, 0)
    assert actual.tolist() == expected


def test_a_sum_that_reads_its_result_elsewhere_begins_in_memory() -> None:
    lines = block("vi = T.axis.spatial(m, i)\nvk = T.axis.reduce(n, k)", "k < 1", term="Y[vk] + 5")
    func = nest("i, k in T.grid(m, n)", lines, ROWS_OF_4, ", m: T.int64, n: T.int64")
    for rows, terms in ((1, 1), (2, 1), (3, 3), (3, 0)):
        check(func, numbers(3, 4), numbers(3), rows, terms)
    actual = numbers(3)
    load(func)(numbers(3, 4), actual, 2, 2)
    assert actual.tolist() == [205, 310, 3]
