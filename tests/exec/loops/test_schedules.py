"""Plans perform what the text says in an order that gives the same, as the checker replays it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.exec.loops.plan import dependence
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.native.backend import rewritten
from relaxpy.exec.native.trees import fusion, program as native
from relaxpy.exec.native.trees.program import program_of
from relaxpy.script import from_source
from tests.exec.loops.program_checker import ProgramRun, program_fault
from tests.exec.loops.schedule_checker import OrderError, PlanRun, first_fault
from tests.exec.loops.schedule_text import TextRun
from tests.fuzz.chains import Chain
from tests.fuzz.schedules import LENGTHS, arguments_of, kernel, perform

COLLIDING = from_source("""
@T.prim_func
def f(A: T.Buffer((3,), "int32"), C: T.Buffer((3,), "int32"), E: T.Buffer((3,), "int32")):
    for i, j in T.grid(3, 3):
        C[i] = C[i] + A[j]
        E[(i + j) % 3] = C[i]
""")
CHAIN = from_source("""
@T.prim_func
def f(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    Q = T.alloc_buffer((4,), "int32")
    P = T.alloc_buffer((4,), "int32")
    for i in range(4):
        P[i] = X[i] + 1
    for i in range(4):
        Q[i] = X[i] * 3 + P[i]
    for i in range(4):
        Y[i] = Q[i] * 2
""")
STAGES = from_source("""
@T.prim_func
def f(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32"), S: T.Buffer((), "int32")):
    S[()] = 0
    for i in range(4):
        S[()] = S[()] + X[i]
    for i in range(4):
        X[i] = S[()]
    for i in range(4):
        Y[i] = X[3 - i]
""")
NUMBERS = np.arange(4, dtype=np.int32)


def test_the_checker_finds_loops_interchanged_across_stores_that_collide(monkeypatch) -> None:
    args = tuple(NUMBERS[:3].copy() for _ in range(3))
    assert first_fault(COLLIDING, args) is None
    whole = dependence._pairs

    def without_stores_that_collide(*parts: Any) -> Iterator[Any]:
        yield from (p for p in whole(*parts) if not (p[0] is p[1] and None in p[0].maps))

    monkeypatch.setattr(dependence, "_pairs", without_stores_that_collide)
    fault = first_fault(COLLIDING, args)
    assert fault == (
        "E[0] is left by line 6, column 9 at i=1, j=2 (stores E[0]), "
        "not by line 6, column 9 at i=2, j=1 (stores E[0])"
    )


def test_the_checker_finds_memory_whose_owner_is_followed_one_step_only() -> None:
    args = NUMBERS, np.zeros(4, np.int32)
    assert first_fault(CHAIN, args) is None
    p, q = sorted(make_plan(CHAIN, "f").shared, key=lambda buffer: buffer.name)
    y = next(b for b in CHAIN.buffer_map.values() if b.name == "Y")
    plan = make_plan(CHAIN, "f")
    fault = first_fault(CHAIN, args, replace(plan, shared={p: q, q: y}))
    assert fault is not None
    assert re.fullmatch(
        r"line 9, column 9 at i=(.) \(stores Q\[\1\]\) reads P\[\1\] as left by an intermediate "
        r"result, not by line 7, column 9 at i=\1 \(stores P\[\1\]\)",
        fault,
    )


def test_the_checker_names_the_dependence_that_is_violated() -> None:
    args = NUMBERS, np.zeros(4, np.int32), np.zeros((), np.int32)
    plan = make_plan(STAGES, "f")
    assert first_fault(STAGES, args, plan) is None
    total, spread, reverse = plan.trees
    assert first_fault(STAGES, args, replace(plan, trees=(total, reverse, spread))) == (
        "line 10, column 9 at i=0 (stores Y[0]) reads X[3] as left by its initial value, "
        "not by line 8, column 9 at i=3 (stores X[3])"
    )
    fault = first_fault(STAGES, args, replace(plan, trees=(spread, total, reverse)))
    assert fault is not None
    assert fault.startswith("line 8, column 9 at i=0 (stores X[0]) reads S[0] as left by")
    assert first_fault(STAGES, args, replace(plan, trees=(total, spread))) == (
        "line 10, column 9 at i=0 (stores Y[0]) is never executed"
    )
    fault = first_fault(STAGES, args, replace(plan, trees=(total, spread, reverse, reverse)))
    assert fault is not None
    assert fault.endswith("is not in the text, or not so often")


@settings(max_examples=15)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(LENGTHS),
    st.booleans(),
)
def test_any_adversary_is_performed_as_its_text_says(
    seed: int, rows: int, places: int, most: int, small: bool
) -> None:
    perform(kernel(seed, most), arguments_of(rows, places, seed), small=small)


@pytest.mark.parametrize("number", range(20))
def test_blocks_of_rows_are_in_a_legal_order(number: int) -> None:
    """However few rows there are, and however little they compute."""
    arguments = arguments_of(1 + number // 4 % 4, 1 + number % 4, number)
    perform(kernel(f"rows/{number}", 4), arguments, small=True)


@pytest.mark.parametrize("seed", range(10))
def test_chains_are_in_a_legal_order(seed: int) -> None:
    chain = Chain(Random(seed))
    perform(chain.text(), chain.arguments(seed), small=bool(seed % 2))


def test_the_checker_finds_registers_that_are_read_too_late(monkeypatch) -> None:
    args = NUMBERS, np.zeros(4, np.int32)
    text = TextRun(CHAIN, args)
    assert program_fault(CHAIN, args, make_plan(CHAIN, "f"), text) is None
    monkeypatch.setattr(fusion, "_joined", lambda *_: None)
    monkeypatch.setattr(native, "_temporaries", lambda run, _: (s.target for s in run.statements))
    fault = program_fault(CHAIN, args, make_plan(CHAIN, "f"), text) or ""
    assert "reads P[2] as left by its initial value" in fault


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        "T.if_then_else(i < 1, T.min(S[()], S[()]), T.int32(-1) * S[()])",
        "S[()] * (T.if_then_else(i == i, T.int32(-3), S[()]) - X[i])",
        "T.min(S[()], T.if_then_else(i == 5, T.if_then_else(i == 2, T.int32(2), S[()]), X[i]))",
    ],
)
def test_an_accumulation_may_be_the_only_operand_of_choices_that_is_ever_selected(
    value: str, small: bool
) -> None:
    text = f"""
@T.prim_func
def f(S: T.Buffer((), "int32"), X: T.Buffer((4,), "int32")):
    for i in range(1, 4):
        S[()] = {value}
"""
    perform(text, (np.array(5, "int32"), NUMBERS), small=small)


COPIED = """
@T.prim_func
def f(x: T.handle, s: T.handle, n: T.int64):
    X = T.match_buffer(x, (4,), "int32")
    S = T.match_buffer(s, (), "int32")
    L = T.alloc_buffer((), "int32")
    L[()] = X[2]
    for i in range(n):
        X[i] = X[i] * 3
    S[()] = L[()]
"""


def test_a_result_may_be_computed_where_the_text_copies_it_to() -> None:
    func = from_source(COPIED)
    args = NUMBERS, np.array(0, "int32"), 4
    text, plan = TextRun(func, args), make_plan(func, "f")
    program = rewritten(program_of(plan))
    assert program.plan.shared
    assert program_fault(func, args, plan, text) is None
    trees = tuple(tree for tree in program.trees if tree is not program.trees[0])
    with pytest.raises(OrderError, match="never executed"):
        ProgramRun(program.plan, text, program=replace(program, trees=trees), lanes=2).whole()


def test_a_condition_may_read_what_a_buffer_was_computed_from_that_is_left_out() -> None:
    text = """
@T.prim_func
def f(x: T.handle, y: T.handle, n: T.int64):
    X = T.match_buffer(x, (4,), "int32")
    Y = T.match_buffer(y, (4,), "int32")
    L = T.alloc_buffer((), "int32")
    L[()] = X[2]
    for i in range(n):
        if L[()] > 0:
            Y[i] = Y[i] + 5
"""
    func, args = from_source(text), (NUMBERS, NUMBERS, 4)
    plan = make_plan(func, "f")
    assert [buffer.name for buffer in plan.forwarded] == ["L"]
    assert first_fault(func, args, plan) is None
    assert program_fault(func, args, plan, TextRun(func, args)) is None


REPEATED = """@T.prim_func
def f(x: T.handle, y: T.handle, n: T.int64):
    X = T.match_buffer(x, (3,), "int32")
    Y = T.match_buffer(y, (3,), "int32")
    S = T.alloc_buffer((3,), "int32")
    for k in range(3):
        S[k] = 1
    for i in range(n):
        {}
    for k in range(3):
        Y[k] = {}
"""
"""A loop that a plan may shorten, or not."""
SUM = "S[0] = 0\n        for j in range(3):\n            S[0] = S[0] + X[j]"


@pytest.mark.parametrize(
    ("statement", "result", "is_dead"),
    [
        *(("S[0] = X[1] + 5", "S[0]", False), (SUM, "S[0]", False), ("S[0] = 7", "S[k]", False)),
        *(("S[1] = i", "S[0]", True), ("S[0] = X[i]", "X[k]", True)),
    ],
)
def test_what_a_loop_repeats_is_executed_once_and_what_nothing_reads_never(
    statement: str, result: str, is_dead: bool
) -> None:
    assert shortened(statement, result, 1) is None
    fault = shortened(statement, result, 0)
    assert fault is None if is_dead else fault


@pytest.mark.parametrize(
    ("statement", "result"),
    [("S[0] = i", "S[0]"), ("S[0] = X[i]", "S[k]"), ("S[0] = S[0] + X[1]", "S[0]")],
)
def test_the_checker_finds_iterations_that_are_missing(statement: str, result: str) -> None:
    for count in (0, 1):
        assert shortened(statement, result, count)


def shortened(statement: str, result: str, count: int) -> str | None:
    """What is wrong with a plan that executes only `count` of three iterations, if anything."""
    func = from_source(REPEATED.format(statement, result))
    args = np.array([3, 4, 5], "int32"), np.zeros(3, "int32"), 3
    run = PlanRun(in_tiles(make_plan(func, "f")), TextRun(func, args))
    run.env[func.params[2]] = count
    try:
        run.whole()
    except OrderError as error:
        return str(error)
    return None
