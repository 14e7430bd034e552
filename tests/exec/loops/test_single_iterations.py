"""Loops of one iteration are replaced by it before a kernel is planned."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy.exec.loops.nest.nodes import Loop, walk_items
from relaxpy.exec.loops.plan.planner import nest_of
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import For, SeqStmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.script import from_source
from relaxpy.support.dataclass import replace
from tests.counting import calls

TARGETS = ["numpy", "native", "reference"]

PROGRAMS = {
    "a block with a reduction": """
    for i, j, k in T.grid({a}, {b}, {c}):
        with T.block("B"):
            T.where(i * 2 + j < {a} * 2 + 1)
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj, 0] = T.int32(3)
            B[vi, vj, 0] = B[vi, vj, 0] + A[vi, vj, vk]""",
    "an init in the last reduction loop": """
    for i, k, j in T.grid({a}, {c}, {b}):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SRS", [i, j, k])
            with T.init():
                B[vi, 0, vk] = A[vi, 0, vk]
            B[vi, 0, vk] = B[vi, 0, vk] * 2 + A[vi, vj, vk]""",
    "statements between loops": """
    for i in range(4, 4 + {a}):
        B[i - 4, 0, 0] = i
        for j in range({b}):
            if j + i > 4:
                B[i - 4, j, 0] = B[i - 4, j, 0] + i - j
            for k in range(j + 1 - j):
                B[i - 4, j, k] = B[i - 4, j, k] + k * i + A[i - 4, j, k]""",
    "an opaque block that names outer loops": """
    for i, j in T.grid({a}, {b}):
        with T.block("root"):
            T.reads(A[i, j, 0:{c}])
            T.writes(B[i, j, 0:{c}])
            for k in range({c}):
                with T.block("B"):
                    vk = T.axis.spatial({c}, k)
                    B[i, j, vk] = A[i, j, vk] + i * 5 + j * 3 + k""",
}


def kernel(body: str, shape: tuple[int, int, int]) -> PrimFunc:
    a, b, c = shape
    text = f'A: T.Buffer({shape}, "int32"), B: T.Buffer({shape}, "int32")'
    func = from_source(f"@T.prim_func\ndef main({text}):{body.format(a=a, b=b, c=c)}\n")
    assert isinstance(func, PrimFunc)
    return func


def results(func: PrimFunc, shape: tuple[int, int, int]) -> list[np.ndarray]:
    """B after each target has run a kernel."""
    found = []
    for target in TARGETS:
        a = np.random.default_rng(0).integers(-9, 9, shape, "int32")
        b = np.full(shape, 7, "int32")
        relaxpy.compile(IRModule({"main": func}), target=target)["main"](a, b)
        found.append(b)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=6, deadline=None)
@given(st.tuples(*[st.sampled_from([1, 1, 2, 5])] * 3))
def test_kernels_compute_what_the_reference_does(name: str, shape: tuple[int, int, int]) -> None:
    first, *others = results(kernel(PROGRAMS[name], shape), shape)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_nest_has_no_such_loops(name: str) -> None:
    func = kernel(PROGRAMS[name], (1, 1, 1))
    assert any(True for _ in occurrences(func.body, For))
    _, nest, _ = nest_of(func, "f")
    loops = [item for item in walk_items(nest.items) if isinstance(item, Loop)]
    written = "range(j + 1 - j)" in PROGRAMS[name]  # which is not a literal
    assert len(loops) == written


@pytest.mark.parametrize("extents", [(1, 3), (3, 1), (1, 1)])
def test_two_loops_may_have_the_same_variable(extents: tuple[int, int]) -> None:
    first, second = extents
    body = f"""
    for i in range({first}):
        B[i, 0, 0] = A[i, 0, 0] + i
    for i in range(2, 2 + {second}):
        B[i - 2, 1, 0] = A[i - 2, 0, 0] - i"""
    func = kernel(body, (3, 2, 1))
    one, other = occurrences(func.body, For)
    both = replace(
        other, loop_var=one.loop_var, body=substitute(other.body, {other.loop_var: one.loop_var})
    )
    shared = func.with_fields(body=SeqStmt((one, both)))
    expected, *found = results(func, (3, 2, 1)) + results(shared, (3, 2, 1))
    for each in found:
        np.testing.assert_array_equal(each, expected)


JUMPS = {
    "a loop around it": """
    for i in range(4):
        for once in range(1):
            if A[i, 0, 0] > 0:
                {jump}
            B[i, 0, 0] = A[i, 0, 0] + once
        B[i, 1, 0] = 5""",
    "a loop without a condition around it": """
    k = T.alloc_buffer((1,), "int32")
    k[0] = 0
    while k[0] < 4:
        for once in range(3, 4):
            if A[k[0], 0, 0] > 0:
                {jump}
            B[k[0], 0, 0] = once
        B[k[0], 1, 0] = 5
        k[0] = k[0] + 1""",
    "a block": """
    for i, j in T.grid(4, 1):
        with T.block("rows"):
            for once in range(1):
                if A[i, j, 0] > 0:
                    {jump}
                B[i, j, 0] = 4
            B[i, 1, 0] = 5""",
    "nothing": """
    for once in range(1):
        if A[1, 1, 0] > 0:
            {jump}
        B[once, 0, 0] = 4
    B[0, 1, 0] = 5""",
}


@pytest.mark.parametrize("jump", ["break", "continue"])
@pytest.mark.parametrize("around", JUMPS)
def test_a_jump_leaves_the_one_iteration_alone(around: str, jump: str) -> None:
    shape = (4, 2, 1)
    *found, expected = results(kernel(JUMPS[around].replace("{jump}", jump), shape), shape)
    assert (expected == 5).any()
    for each in found:
        np.testing.assert_array_equal(each, expected)


def test_the_time_to_read_a_long_iteration_is_linear() -> None:
    def work(number: int) -> int:
        lines = [f"        assert A[i, 0, 0] < {1000 + n}, 'large'\n" for n in range(number)]
        body = "\n    for i in range(1):\n" + "".join(lines) + "        B[i, 0, 0] = A[i, 0, 0]"
        func = kernel(body, (1, 1, 1))
        return calls(lambda: nest_of(func, "f"))

    work(10)
    assert work(200) < 5 * work(50)
