"""Which statements are vectorised, and in which order, compared with a list of all iterations.

A loop is kept where an iteration reads what an earlier one stores, and only there: a step that
performs all iterations at once reads everything before it stores anything. Statements that need
nothing from each other's later iterations are split, each before those that depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from random import Random

import pytest

from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.report import report_of
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source

WHOLE, KEPT = "elementwise", "scalar loop"


@dataclass(frozen=True)
class Store:
    """`target[index] = source[read] * 2 + 1` where i lies in [low, high): texts over i."""

    target: str
    index: str
    source: str
    read: str
    low: int = 0
    high: int = 99


def plan_of(text: str) -> list[str]:
    """The method of each statement, in the order of the plan."""
    func = from_source(text)
    assert isinstance(func, PrimFunc)
    report = report_of(make_plan(func, "kernel").trees)
    return [f"{e.block}: {e.method.removeprefix('in row blocks, ')}" for e in report]


def one_loop(stores: Sequence[Store], low: int, high: int) -> str:
    names = sorted({name for s in stores for name in (s.target, s.source)})
    dimensions = {s.target: s.index.count(",") + 1 for s in stores}
    shapes = {name: (64,) * dimensions.get(name, 1) for name in names}
    arguments = ", ".join(f'{name}: T.Buffer({shapes[name]}, "int32")' for name in names)
    text = f"@T.prim_func\ndef f({arguments}):\n    for i in range({low}, {high}):\n"
    for s in stores:
        text += f"        if i >= {s.low} and i < {s.high}:\n"
        text += f"            {s.target}[{s.index}] = {s.source}[{s.read}] * 2 + 1\n"
    return text


def enumerated(stores: Sequence[Store], low: int, high: int) -> list[str]:
    """The expected result of `plan_of`: statements in cycles of dependences stay in the loop."""
    performed = [
        (n, (s.target, eval(s.index, {"i": i})), (s.source, eval(s.read, {"i": i})))
        for i in range(low, high)
        for n, s in enumerate(stores)
        if s.low <= i < s.high
    ]
    count = len(stores)
    reaches = [[False] * count for _ in stores]
    for (m, stored, read), (n, stored_later, read_later) in combinations(performed, 2):
        if stored in (read_later, stored_later) or (m != n and stored_later == read):
            reaches[m][n] = True
    for k, m, n in product(range(count), repeat=3):
        reaches[m][n] |= reaches[m][k] and reaches[k][n]
    left, found = list(range(count)), list[str]()
    while left:
        first = next(n for n in left if all(reaches[n][m] for m in left if reaches[m][n]))
        together = [n for n in left if n == first or (reaches[n][first] and reaches[first][n])]
        how = KEPT if reaches[first][first] else WHOLE
        found += [f"{stores[n].target}: {how}" for n in together]
        left = [n for n in left if n not in together]
    return found


def agrees(stores: Sequence[Store], low: int, high: int) -> None:
    assert plan_of(one_loop(stores, low, high)) == enumerated(stores, low, high), stores


@pytest.mark.parametrize("stride", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("gap", range(-7, 8))
def test_a_statement_that_reads_its_own_results(stride: int, gap: int) -> None:
    """Gaps that are multiples of the stride or not, and within the loop's iterations or beyond."""
    for low, high in ((0, 2), (1, 4)):
        agrees([Store("A", f"{stride} * i + {gap + 20}", "A", f"{stride} * i + 20")], low, high)


@pytest.mark.parametrize("stride", [-2, 1, 3])
@pytest.mark.parametrize("gap", range(-3, 4))
def test_two_statements_are_split_unless_each_needs_the_other(stride: int, gap: int) -> None:
    here = f"{stride} * i + 20"
    for other in range(-3, 4):
        stores = [
            Store("A", f"{here} + {gap}", "B", here),
            Store("B", f"{here} + {other}", "A", here),
        ]
        agrees(stores, 0, 3)


@pytest.mark.parametrize("stride", [-2, 1])
@pytest.mark.parametrize("gap", range(-2, 3))
def test_two_statements_that_store_to_one_buffer(stride: int, gap: int) -> None:
    here = f"{stride} * i + 20"
    for other in range(-2, 3):
        stores = [
            Store("A", f"{here} + {gap}", "B", here),
            Store("A", here, "C", here),
            Store("C", f"{here} + {other}", "D", here),
        ]
        agrees(stores, 0, 3)


@pytest.mark.parametrize("seed", range(24))
def test_many_statements_that_share_a_buffer(seed: int) -> None:
    """Each stores to three elements of a row or column, or of a vector, and reads three."""
    rng = Random(seed)
    near = lambda: f"i + {rng.randint(0, 9)}"  # noqa: E731
    places = [
        near,
        lambda: f"{near()}, {rng.randint(0, 2)}",
        lambda: f"{rng.randint(0, 2)}, {near()}",
    ]
    place = places[seed % 3]
    agrees([Store("A", place(), "A", place()) for _ in range(4 + seed % 2)], 0, 3)


@pytest.mark.parametrize("gap", range(-3, 4))
def test_elements_differ_in_any_dimension(gap: int) -> None:
    for other in range(-1, 2):
        agrees([Store("A", f"i + {4 + gap}, {4 + other}", "A", "i + 4, 4")], 0, 3)
        if abs(gap) <= 1:
            agrees([Store("A", f"i + {4 + gap}, i + {4 + other}", "A", "i + 4, i + 4")], 0, 3)


RANGES = [*combinations(range(0, 7, 2), 2)]


@pytest.mark.parametrize("first", RANGES)
@pytest.mark.parametrize("second", RANGES)
def test_statements_in_different_iterations_of_one_loop(first, second) -> None:
    """Each takes part in some iterations only, which decides which of them comes first."""
    for p, q in ((1, 0), (0, 1), (-1, 1), (1, -1), (2, 2)):
        stores = [
            Store("A", f"i + {20 + p}", "B", "i + 20", *first),
            Store("B", f"i + {20 + q}", "A", "i + 20", *second),
        ]
        agrees(stores, 0, 6)


@pytest.mark.parametrize(("read", "reached"), [("2 * i + 20", range(20, 27)), ("22", [22])])
@pytest.mark.parametrize("gap", range(-7, 8))
def test_places_that_move_unlike_are_compared_by_how_far_they_reach(read, reached, gap) -> None:
    """Beyond each other's reach nothing meets; within it an order that is there is kept."""
    stores = [Store("A", f"i + {22 + gap}", "A", read)]
    found = plan_of(one_loop(stores, 0, 4))
    if not any(22 + gap + i in reached for i in range(4)):
        assert found == [f"A: {WHOLE}"]
    if enumerated(stores, 0, 4) == [f"A: {KEPT}"]:
        assert found == [f"A: {KEPT}"]
