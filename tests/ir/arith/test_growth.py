"""Large expressions: twice the size is not many times the work, and no size is too deep."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer, ConstIntBound, IntervalSet, ModularSet
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Range
from relaxpy.ir.traverse import map_children, walk
from tests.counting import calls
from tests.ir.arith.boxes import Env, value

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


def remainder_at(size: int, a: int, b: int) -> int:
    """What `remainders(size)` is where x is `a` and y is `b`."""
    for k in range(size):
        a = (a * 3 + b) % (7 + k)
    return a


def shared_value(expr: E, env: Env) -> int:
    """The value of an expression without Let: each shared part is evaluated once."""
    values: dict[Any, E] = {var: T.IntImm(var.dtype, number) for var, number in env.items()}
    for node in walk(expr):
        if node not in values:
            number = value(map_children(lambda part: values[part], node), {})
            assert number is not None
            values[node] = T.IntImm(node.dtype, number)
    return values[expr].value


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_an_expression_of_300_levels_gets_a_right_answer(
    ask: Callable[[Analyzer, E], Any],
) -> None:
    answer = ask(Analyzer(), remainders(300))
    for a, b in itertools.product(range(4), (-2, 3)):
        number, env = remainder_at(300, a, b), {x: a, y: b}
        match answer:
            case T.PrimExpr():
                assert shared_value(answer, env) == number
            case ConstIntBound(min_value=low, max_value=high):
                assert low <= number <= high
            case ModularSet(coeff=coeff, base=base):
                assert (number - base) % coeff == 0
            case IntervalSet(min_value=low, max_value=high):
                assert not answer.has_lower_bound() or shared_value(low, env) <= number
                assert not answer.has_upper_bound() or shared_value(high, env) >= number
            case _:
                raise AssertionError(answer)


def test_lets_of_300_levels_are_even_where_they_end_in_a_double() -> None:
    """Each level doubles or squares, so the residue is known though the value is astronomic."""
    deep = products(300)
    assert Analyzer().modular_set(deep).coeff % 2 == 0
    assert Analyzer().modular_set(deep).base % 2 == 0
    bound = Analyzer().const_int_bound(deep)
    assert bound.min_value < 0 < bound.max_value
    assert Analyzer().modular_set(Analyzer().simplify(deep)).coeff % 2 == 0


def test_many_conditions_are_assumed_one_by_one() -> None:
    made, parts = Analyzer(), variables(2000)
    with made.constraint_scope(reduce(T.And, [T.LT(v, k) for k, v in enumerate(parts)])):
        assert made.can_prove(parts[0] < 0)
        assert made.can_prove(parts[-1] < 1999)
