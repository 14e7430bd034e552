"""The checkers of plans and of programs find a mistake in each rewrite of the loops of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from relaxpy.exec.loops.plan import blocking, copies, initialisation, memory, schedule
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.plan.tree import Plan, Row
from relaxpy.exec.native import split
from relaxpy.exec.native.trees import chains, epilogues, flat, fusion, obligations, program as tree
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.script import from_source
from tests.exec.loops.program_checker import program_fault, small_blocks
from tests.exec.loops.schedule_checker import first_fault
from tests.exec.loops.schedule_text import TextRun
from tests.fuzz.chains import Chain
from tests.rows import sections

Mistake = Callable[[pytest.MonkeyPatch], None]


def always(owner: Any, name: str) -> Mistake:
    """A condition that is taken to hold."""
    return lambda patch: patch.setattr(owner, name, lambda *_, **__: True)


def instead(owner: Any, name: str, result: Callable[..., Any]) -> Mistake:
    """A function that has another result, which follows from its arguments."""
    return lambda patch: patch.setattr(owner, name, result)


def row_without_offset(*args: Any, row: Callable[..., Row | None] = blocking._row) -> Row | None:
    found = row(*args)
    return found and Row(found.axis, 0)


def all_independent(_: Plan, run: Any, serial: object) -> frozenset[Any]:
    return frozenset(axis.var for axis in run.loops)


def without_path(
    *args: Any, of_value: Callable[..., Iterator[Obligation]] = obligations.of_value
) -> Iterator[Obligation]:
    return (replace(obligation, path=()) for obligation in of_value(*args))


def fault(text: str, *args: np.ndarray) -> str | None:
    """What is wrong with the plan of a kernel or with its program, if anything.

    Both are replayed as they are, and in small blocks.
    """
    func = from_source(text)
    run, plan = TextRun(func, args), make_plan(func, "f")
    found = program_fault(func, args, plan, run)
    with small_blocks():
        found = found or first_fault(func, args, in_tiles(plan), run)
        return found or program_fault(func, args, plan, run)


MISTAKES: dict[str, Mistake] = {
    "distribute": instead(schedule, "edges", lambda *_: set()),
    "interchange": always(schedule._Scheduler, "_may_be_outermost"),
    "iterations in any order": instead(Plan, "independent", all_independent),
    "forward a copy": always(copies._Forwarding, "_is_constant"),
    "share memory": always(memory, "_overwrites_in_place"),
    "move an init out of its loops": always(initialisation._Initialiser, "_is_own_element"),
    "hoist an initialisation out of a loop": always(initialisation, "_same_iterations"),
    "hoist an initialisation over a store": instead(initialisation, "loads", lambda _: iter(())),
    "tile": instead(blocking, "_row", row_without_offset),
    "fuse": always(fusion, "meets_itself"),
    "keep in registers": instead(
        tree, "_temporaries", lambda run, _: (s.target for s in run.assignments)
    ),
    "leave out tests": instead(tree, "tests_within", lambda *_: ()),
    "join axes": instead(flat, "_product", lambda first, _: first),
    "join an epilogue": always(epilogues._Joiner, "_is_elementwise"),
    "test an index before it is computed": instead(
        obligations, "_early", lambda obligation, *_: obligation
    ),
    "test an index in iterations that do not use it": instead(
        obligations, "of_value", without_path
    ),
    "divide into tasks": instead(split, "_free_axes", lambda run: [*run.axes, *run.ordered]),
    "split a reduction": instead(
        split, "_block_count", lambda axis, size: (axis.extent - 1).expr() // size
    ),
}
BODIES = sections(
    """
--- distribute
    for i in range(3):
        Z[i, 0] = X[i] + 1
        X[i + 1] = Z[i, 0]
--- interchange
    for i, j in T.grid(4, 4):
        Z[i + 1, j + 1] = Z[i, j + 2] + W[i + 1, j]
        W[i + 1, j + 1] = Z[i + 1, j] + W[i + 1, j + 1]
--- iterations in any order
    for i in range(5):
        X[i] = X[i + 1] * 2
--- forward a copy
    for i in range(6):
        L[i] = X[i]
    for i in range(6):
        X[i] = 0
    for i in range(6):
        Y[i] = L[i]
--- share memory
    for i in range(6):
        L[i] = X[i] * X[i]
    for i in range(6):
        Y[i] = L[5 - i] + X[i]
--- move an init out of its loops
    for k, i in T.grid(6, 6):
        with T.block("sum"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                Y[vi] = 0
            Y[vi] = Y[vi] + Z[vi, vk] * Y[5 - vi]
--- hoist an initialisation out of a loop
    for t in range(3):
        if t < 2:
            for i in range(6):
                Y[i] = 0
        for i, k in T.grid(6, 6):
            Y[i] = Y[i] + Z[i, k]
        for i in range(6):
            Z[i, 0] = Y[i]
--- hoist an initialisation over a store
    for i in range(6):
        Y[i] = X[i]
    for i in range(6):
        X[i] = 5
    for i, k in T.grid(6, 6):
        Y[i] = Y[i] + Z[i, k]
--- tile
    for i in range(5):
        L[i + 1] = X[i] + 1
    for i in range(5):
        Y[i] = L[i] * 2
--- fuse
    for i in range(6):
        Y[i] = X[i] + 1
    for i in range(6):
        L[i] = Y[5 - i]
    for i in range(6):
        X[i] = L[i] * 2
--- keep in registers
    for i in range(6):
        L[i] = X[i] + 1
    for i, k in T.grid(6, 6):
        Y[i] = Y[i] + Z[i, k] * L[k]
--- leave out tests
    for i in range(4):
        for j in range(6):
            Y[j] = Z[i, j] + Y[5 - j]
        if i < 2:
            for j in range(6):
                Z[i + 1, j] = Y[j]
--- join axes
    for i, j in T.grid(6, 6):
        Z[i, j] = W[i, j] + 1
--- join an epilogue
    for i, j in T.grid(6, 6):
        M[i, j] = 0
        for k in range(6):
            M[i, j] = M[i, j] + Z[i, k] * Z[k, j]
    for i, j in T.grid(6, 6):
        W[i, j] = M[i, j] + M[0, j]
--- test an index before it is computed
    for i in range(6):
        X[i] = (X[i] % 6 + 6) % 6
    for i in range(6):
        Y[X[i]] = i
--- test an index in iterations that do not use it
    for i in range(6):
        X[i] = X[i] * 2
    for i in range(6):
        Y[i] = T.if_then_else(X[i] >= 0, Z[0, T.min(X[i], 5)], 0)
--- divide into tasks
    for i in range(5):
        X[i + 1] = X[i] * 2
--- split a reduction
    for k, l in T.grid(6, 6):
        Y[0] = Y[0] + Z[k, l]
"""
)
HEAD = """
@T.prim_func
def f(x: T.handle, y: T.handle, z: T.handle, w: T.handle, p: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (6,), "int32")
    Y = T.match_buffer(y, (6,), "int32")
    Z = T.match_buffer(z, (6, 6), "int32")
    W = T.match_buffer(w, (6, 6), "int32")
    P = T.match_buffer(p, (n,), "int32")
    L = T.alloc_buffer((6,), "int32")
    R = T.alloc_buffer((2, 3), "int32")
    M = T.alloc_buffer((6, 6), "int32")
"""


@pytest.mark.parametrize("name", MISTAKES)
def test_the_checkers_find_a_mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake, body = MISTAKES[name], BODIES[name]
    rng = np.random.default_rng(0)
    shapes = (6,), (6,), (6, 6), (6, 6), (0,)
    args = tuple(rng.integers(-3, 4, shape).astype(np.int32) for shape in shapes)
    assert fault(HEAD + body, *args) is None
    mistake(monkeypatch)
    assert fault(HEAD + body, *args) is not None


@pytest.mark.parametrize(
    ("mistake", "seed"),
    [
        (instead(chains._Finder, "_private", lambda _, parts, buffers: frozenset(buffers)), 3),
        (always(chains._Finder, "_may_precede"), 7),
    ],
    ids=["_private", "_may_precede"],
)
def test_the_checkers_find_chains_that_are_none(mistake, seed, monkeypatch) -> None:
    chain = Chain(Random(seed))
    text, args = chain.text(), chain.arguments(seed)
    assert fault(text, *args) is None
    mistake(monkeypatch)
    assert fault(text, *args) is not None
