"""Primitives that draw at random: what they draw, how often, and that traces keep it."""

from collections import Counter
from math import prod

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError, RelaxpyError, ScheduleError
from relaxpy.script import tir as T
from relaxpy.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV
from relaxpy.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def sums(A: T.Buffer((2, 12, 30), "float32"), C: T.Buffer((2, 12), "float32")):
    B = T.alloc_buffer((2, 12, 30), "float32")
    for i, j, k in T.grid(2, 12, 30):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = T.exp(A[vi, vj, vk])
    for i, _, j, k in T.grid(2, 1, 12, 30):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi, vj, vk]


def test_numbers_are_drawn_by_their_probabilities() -> None:
    sch = tir.Schedule(sums, seed=1)
    names = [sch.sample_categorical([5, 2, 7], [0.1, 0.6, 0.3]) for _ in range(1000)]
    drawn = [sch.get(name) for name in names]
    for value, prob in ((5, 0.1), (2, 0.6), (7, 0.3)):
        assert abs(drawn.count(value) - 1000 * prob) < 70  # four standard deviations
    assert list(map(sch.copy().get, names)) == drawn
    assert sch.get(names[0] * 2 + 1) == drawn[0] * 2 + 1
    again = tir.Schedule(sums, seed=1)
    assert [again.get(again.sample_categorical([5, 2, 7], [0.1, 0.6, 0.3])) for _ in drawn] == drawn


def test_all_tiles_are_as_likely() -> None:
    sch = tir.Schedule(sums, seed=2)
    loop = sch.get_loops("B")[1]
    drawn = Counter(
        tuple(map(sch.get, sch.sample_perfect_tile(loop, 2, max_innermost_factor=4)))
        for _ in range(800)
    )
    assert set(drawn) == {(12, 1), (6, 2), (4, 3), (3, 4)}
    assert all(abs(count - 200) < 50 for count in drawn.values())  # four standard deviations


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_loop_is_split_by_the_factors_that_were_drawn(n: int) -> None:
    sch = tir.Schedule(sums)
    for loop in sch.get_loops("C"):
        factors = sch.sample_perfect_tile(loop, n, max_innermost_factor=-1)
        extent = sch.get(loop).extent
        new = sch.split(loop, factors)
        assert [sch.get(inner).extent for inner in new] == [sch.get(f) for f in factors]
        assert prod(sch.get(f) for f in factors) == extent
    verify_trace_roundtrip(sch, sums)
    verify_trace_roundtrip(sch.copy(), sums)


def test_a_block_is_computed_where_was_drawn() -> None:
    """In one of both outer loops of the reduction, but not in that of one iteration."""
    sch = tir.Schedule(sums, seed=3)
    assert {_decided(sch, "B") for _ in range(40)} == {-2, -1, 0, 2}
    depths = {}
    for decision in (-2, -1, 0, 1, 2, 3):
        sch = tir.Schedule(sums)
        block = sch.get_block("B")
        sch.compute_at(block, sch.sample_compute_location(block, decision=decision))
        loops = None if decision == -2 else len(sch.get_loops(block))
        depths[decision] = "B[" in sch.mod.script(), loops
        verify_trace_roundtrip(sch, sums)
    assert depths == {
        -2: (False, None),
        -1: (True, 3),
        0: (True, 3),
        1: (True, 3),
        2: (True, 4),
        3: (True, 4),
    }


def _decided(sch: tir.Schedule, block: str) -> object:
    sch.sample_compute_location(block)
    return sch.trace.decisions[sch.trace.insts[-1]]


@pytest.mark.parametrize("as_map", [False, True])
def test_an_index_map_may_be_of_factors_that_were_drawn(as_map: bool) -> None:
    sch = tir.Schedule(sums)
    _, inner = sch.sample_perfect_tile(sch.get_loops("C")[3], 2, decision=[10, 3])
    index_map: object = lambda *i, last: [*i, last // inner, last % inner]  # noqa: E731
    if as_map:
        index_map = tir.IndexMap.from_func(index_map, 2, index_dtype="int32")
    sch.transform_layout("C", ("write", 0), index_map, pad_value=0.0)
    written = sch.get(sch.get_block("C")).writes[0].buffer
    assert [int(size) for size in written.shape][-1] == 3
    verify_trace_roundtrip(sch, sums)


def test_truth_values_are_written_as_those_of_python() -> None:
    block, loop = BlockRV(), LoopRV()
    steps = [
        Instruction(InstructionKind.get("GetBlock"), [], ["C", "main"], [block]),
        Instruction(InstructionKind.get("GetLoops"), [block], [], [loop]),
        Instruction(
            InstructionKind.get("Split"),
            [loop, None, 32],
            [tir.const(True, "bool"), tir.const(False, "bool")],
            [LoopRV(), LoopRV()],
        ),
    ]
    last = str(tir.schedule.Trace(steps, {})).splitlines()[-1]
    assert last.endswith("factors=[None, 32], preserve_unit_iters=True, disable_predication=False)")


def test_a_decision_is_written_and_can_be_replaced() -> None:
    sch = tir.Schedule(sums)
    loop = sch.get_loops("C")[3]
    sch.split(loop, sch.sample_perfect_tile(loop, 2, decision=[10, 3]))
    line = (
        "v4, v5 = sch.sample_perfect_tile(loop=l3, n=2, max_innermost_factor=16, decision=[10, 3])"
    )
    assert sch.trace.as_python()[1:] == [
        line,
        "l6, l7 = sch.split(loop=l3, factors=[v4, v5], preserve_unit_iters=True, "
        "disable_predication=False)",
    ]
    assert sch.trace.as_json()[1] == [[1, [10, 3]]]
    other = tir.Schedule(sums)
    sch.trace.apply_to_schedule(
        other, decision_provider=lambda inst, inputs, attrs, old: old and old[::-1]
    )
    assert line.replace("[10, 3]", "[3, 10]") in other.trace.as_python()
    assert [inst.kind.name for inst in sch.trace.simplified().insts] == [
        "GetLoops",
        "SamplePerfectTile",
        "Split",
    ]
    sch.sample_categorical([1], [1.0])
    assert len(sch.trace.simplified().insts) == 3


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (lambda s: s.sample_categorical([1, 2], [1.0]), MisuseError, "each of 2 candidates"),
        (lambda s: s.sample_categorical([1], [1.0], 3), MisuseError, "no candidate 3 among 1"),
        (
            lambda s: s.sample_perfect_tile(s.get_loops("C")[3], 1),
            ScheduleError,
            "there are no 1 factors of 30 of which the last is at most 16",
        ),
        (
            lambda s: s.sample_perfect_tile(s.get_loops("C")[3], 2, decision=[4, 8]),
            MisuseError,
            r"expected 2 factors of 30, found \[4, 8\]",
        ),
        (
            lambda s: s.parallel(s.sample_compute_location("B", decision=-1)),
            ScheduleError,
            "the location that was drawn is root, not a loop",
        ),
        (lambda s: s.get(tir.Var("v", "int32")), IndexError, "did not draw this number"),
        (
            lambda s: tir.schedule.Trace.apply_json_to_schedule([[], [3]], s),
            MisuseError,
            "a decision is",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(step, error, message) -> None:
    with pytest.raises(error, match=message) as caught:
        step(tir.Schedule(sums))
    assert isinstance(caught.value, RelaxpyError)
