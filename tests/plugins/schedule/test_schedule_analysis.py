"""Which blocks there are, and layouts in which loops visit one element after the other."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError
from relaxpy.tir.schedule.analysis import has_block, is_output_block, suggest_index_map
from tests.exec.loops.written import kernel


def loops(*extents: int) -> list[tir.For]:
    return [
        tir.For(tir.Var(f"l{k}", "int32"), 0, extent, tir.ForKind.SERIAL, tir.Evaluate(0))
        for k, extent in enumerate(extents)
    ]


Indices = Callable[..., Sequence[Any]]
ROWS: list[tuple[Indices, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    (lambda i, j: [i // 4 * 2 + j // 4, i % 4 * 4 + j % 4], (16, 8), (8, 16), (4, 4, 2, 4)),
    (lambda i, j: [j % 4 * 2 + i], (2, 4), (8,), (2, 4)),
    (lambda i, j, k: [k, j, i], (3, 4, 5), (5, 4, 3), (3, 4, 5)),
    (lambda i: [i // 12, i % 12 // 6 + i % 2 * 2, i % 6 // 2], (36,), (3, 4, 3), (3, 6, 2)),
]


@pytest.mark.parametrize(("indices", "extents", "shape", "expected"), ROWS)
def test_loops_visit_the_elements_of_the_new_layout_in_order(indices, extents, shape, expected):
    nest = loops(*extents)
    old = indices(*(loop.loop_var for loop in nest))
    suggested = suggest_index_map(tir.decl_buffer(shape), old, nest)
    assert suggested is not None
    assert tuple(suggested.map_shape(shape)) == expected
    visited = [
        tuple(int(value) for value in suggested.map_indices(indices(*at)))
        for at in product(*map(range, extents))
    ]
    assert visited == sorted(visited)
    assert len(set(visited)) == len(visited)
    there = suggested.inverse(shape)
    for at in product(*map(range, shape)):
        assert tuple(map(int, there.map_indices(suggested.map_indices(at)))) == at


@pytest.mark.parametrize(
    ("indices", "extents"),
    [
        (lambda i, j: [i * j], (2, 4)),
        (lambda i, j: [i + j], (2, 4)),
        (lambda i, j: [i * 8 + j], (2, 4)),
    ],
)
def test_no_layout_is_suggested_for_other_indices(indices, extents) -> None:
    nest = loops(*extents)
    old = indices(*(loop.loop_var for loop in nest))
    assert suggest_index_map(tir.decl_buffer((16,)), old, nest) is None


def test_each_axis_has_an_index() -> None:
    with pytest.raises(MisuseError, match="buffer has 2 axes, found 1 indices"):
        suggest_index_map(tir.decl_buffer((2, 3)), [0], [])


chain = kernel("""
def chain(A: f32[8], C: f32[8]):
    B = T.alloc_buffer((8,), "float32")
    for i in S(8):
        B[vi] = A[vi] * T.float32(2)
    for i in S(8):
        C[vi] = B[vi] + T.float32(1)
""")


nested = kernel("""
def nested(A: f32[8, 4], C: f32[8, 4]):
    for i in S(8, "outer"):
        B = T.alloc_buffer((4,), "float32")
        for j in S(4, "local"):
            B[vj] = A[vi, vj]
        for j in S(4, "inner"):
            C[vi, vj] = B[vj]
""")


def test_names_of_blocks_and_loops_say_what_they_named() -> None:
    sch = tir.Schedule(
        kernel("""
@T.prim_func
def main(A: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            A[v] = 1
""")
    )
    block = sch.get_block("B")
    assert repr(block) == "<block B of the schedule>"
    (loop,) = sch.get_loops(block)
    assert repr(sch.split(loop, [2, None])) == (
        "[<loop i_0 of the schedule>, <loop i_1 of the schedule>]"
    )
    assert repr(tir.schedule.LoopRV()) == "<loop of the schedule>"


def test_output_blocks_are_those_that_write_beyond_their_scope() -> None:
    sch = tir.Schedule(nested)
    names = {
        scope: [sch.get(block).name_hint for block in sch.get_output_blocks(scope)]
        for scope in ("root", "outer", "inner")
    }
    assert names == {"root": ["outer", "inner"], "outer": ["inner"], "inner": []}


def test_blocks_that_write_parameters_are_outputs() -> None:
    sch = tir.Schedule(chain)
    assert not is_output_block(sch, "B")
    assert is_output_block(sch, sch.get_block("C"))
    assert has_block(sch, "B")
    assert not has_block(sch, "D")
    assert len(sch.trace.insts) == 1  # a question is not a step
