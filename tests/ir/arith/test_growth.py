"""Large expressions: twice the size is not many times the work, and no size is too deep."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Range
from tests.counting import calls

E = T.PrimExpr
x, y = T.Var("x", "int32"), T.Var("y", "int32")


def variables(count: int) -> list[T.Var]:
    return [T.Var(f"v{k}", "int32") for k in range(count)]


def total(parts: list[E]) -> E:
    return reduce(ops.add, parts)


def choices(size: int) -> E:
    found: E = x
    for k in range(size):
        found = T.Select(x < y + k, found + 1, k)
    return found


def remainders(size: int) -> E:
    found: E = x
    for k in range(size):
        found = ops.floormod(found * 3 + y, 7 + k)
    return found


def products(size: int) -> E:
    found: E = x
    for k in range(size):
        var = T.Var("t", "int32")
        found = T.Let(var, found + 1, var * var if k % 8 == 0 else var + var)
    return found


QUESTIONS: dict[str, Callable[[Analyzer, E], Any]] = {
    "simplify": lambda made, expr: made.simplify(expr),
    "bound": lambda made, expr: made.const_int_bound(expr),
    "residue": lambda made, expr: made.modular_set(expr),
    "set": lambda made, expr: made.int_set(expr, {x: Range(0, 4)}),
}
GROWN: dict[str, tuple[Callable[[int], E], int]] = {
    "a sum": (lambda size: total(list(variables(size))), 100),
    "a sum of remainders": (
        lambda size: total([ops.floormod(v, k + 2) for k, v in enumerate(variables(size))]),
        20,
    ),
    "a sum of maxima": (lambda size: total([ops.maximum(v, 1) for v in variables(size)]), 20),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize(("make", "size"), GROWN.values(), ids=GROWN.keys())
def test_work_grows_with_the_size(
    make: Callable[[int], E], size: int, ask: Callable[[Analyzer, E], Any]
) -> None:
    once, twice = make(size), make(2 * size)
    first = calls(lambda: ask(Analyzer(), once))
    assert calls(lambda: ask(Analyzer(), twice)) < 6 * first


@pytest.mark.parametrize("question", ["simplify", "bound", "residue"])
def test_choices_inside_choices_are_looked_at_once(question: str) -> None:
    once, twice, ask = choices(10), choices(20), QUESTIONS[question]
    first = calls(lambda: ask(Analyzer(), once))
    assert calls(lambda: ask(Analyzer(), twice)) < 6 * first


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize("make", [remainders, products])
def test_what_is_deep_has_an_answer(
    make: Callable[[int], E], ask: Callable[[Analyzer, E], Any]
) -> None:
    ask(Analyzer(), make(300))


def test_many_conditions_are_assumed_one_by_one() -> None:
    made, parts = Analyzer(), variables(2000)
    with made.constraint_scope(reduce(T.And, [T.LT(v, k) for k, v in enumerate(parts)])):
        assert made.can_prove(parts[0] < 0)
        assert made.can_prove(parts[-1] < 1999)
