"""Large expressions: twice the size is not many times the work, and no size is too deep."""

import itertools
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer, ConstIntBound, IntervalSet, ModularSet
from relaxpy.ir.core.traverse import map_children, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
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
    "choices inside choices": (choices, 10),
    "a sum of maxima": (lambda size: total([ops.maximum(v, 1) for v in variables(size)]), 20),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize(("make", "size"), GROWN.values(), ids=GROWN.keys())
def test_work_grows_with_the_size(make, size, ask) -> None:
    once, twice = make(size), make(2 * size)
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
def test_an_expression_of_300_levels_gets_a_right_answer(ask: Callable[[Analyzer, E], Any]) -> None:
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


def fresh(dtype: str = "int32") -> T.Var:
    return T.Var("v", dtype)


def binary(kind: type[T.BinaryOpExpr]) -> dict[str, Callable[[E], E]]:
    """A node with something nested in either operand, beside a variable or a literal."""
    return {
        f"{kind.__name__} left": lambda e: kind(e, fresh()),
        f"{kind.__name__} right": lambda e: kind(fresh(), e),
        f"{kind.__name__} left of 3": lambda e: kind(e, ops.const(3)),
        f"{kind.__name__} both": lambda e: kind(e, e + 1),
    }


def compared(kind: type[T.CmpExpr]) -> dict[str, Callable[[E], E]]:
    return {
        f"{kind.__name__} chosen": lambda e: T.Select(kind(e, fresh()), fresh(), y),
        f"{kind.__name__} cast": lambda e: T.Cast("int32", kind(fresh(), e)),
    }


def let(value: Callable[[E], E], body: Callable[[E, E], E]) -> Callable[[E], E]:
    def make(e: E) -> E:
        var = fresh()
        return T.Let(var, value(e), body(e, var))

    return make


BUFFER = T.decl_buffer((64,), "int32", "B")
FLAG = T.Var("flag", "bool")
NESTED: dict[str, Callable[[E], E]] = {
    **{
        name: make
        for kind in (T.Add, T.Sub, T.Mul, T.FloorDiv, T.FloorMod, T.Div, T.Mod, T.Min, T.Max)
        for name, make in binary(kind).items()
    },
    **{
        name: make
        for kind in (T.LT, T.LE, T.GE, T.EQ, T.NE)
        for name, make in compared(kind).items()
    },
    "first value": lambda e: T.Select(fresh("bool"), e * 2, fresh()),
    "second value": lambda e: T.Select(T.LT(fresh(), y), fresh(), e + 3),
    "both values": lambda e: T.Select(fresh("bool"), e * 2, e + 3),
    "condition and value": lambda e: T.Select(T.LT(e, y), y, e + 1),
    "if_then_else": lambda e: T.Call("int32", "tir.if_then_else", (T.LT(fresh(), y), e * 2, y)),
    "conjunction": lambda e: T.Select(T.And(T.LT(e, y), FLAG), fresh(), e * 2),
    "disjunction": lambda e: T.Select(T.Or(FLAG, T.EQ(e, y)), y, fresh()),
    "negation": lambda e: T.Select(T.Not(T.LT(y, e)), fresh(), y),
    "let value": let(lambda e: e, lambda _, var: var * 2),
    "let body": let(lambda _: fresh() + 1, lambda e, var: e + var),
    "let both": let(lambda e: e + 1, lambda e, var: e * var),
    "cast": lambda e: T.Cast("int32", T.Cast("int8", e) + T.Var("b", "int8")),
    "float": lambda e: T.Cast("int32", T.Cast("float32", e) + T.FloatImm("float32", 1.0)),
    "unsigned": lambda e: T.Cast("int32", T.Min(T.Cast("uint8", e), T.Var("u", "uint8"))),
    "load": lambda e: T.BufferLoad(BUFFER, [e + y]),
    "call": lambda e: T.Call("int32", "tir.bitwise_xor", (e, fresh())),
    "shift": lambda e: T.Call("int32", "tir.shift_right", (e, ops.const(2))),
}


def grown(make: Callable[[E], E], size: int) -> E:
    return reduce(lambda e, _: make(e), range(size), x)


@pytest.mark.each_choice
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED.keys())
def test_work_does_not_explode_in_any_argument(make, ask) -> None:
    once, twice = grown(make, 7), grown(make, 14)
    first = calls(lambda: ask(Analyzer(), once))
    assert calls(lambda: ask(Analyzer(), twice)) < 12 * first + 3000


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_inequalities_that_tell_nothing_are_not_looked_at(ask) -> None:
    def work(count: int) -> int:
        made, parts = Analyzer(), variables(count)
        chain = reduce(T.And, [T.LT(a, b) for a, b in pairwise(parts)])
        expr = T.Select(T.LT(parts[0], parts[2]), x, y) + T.Max(parts[3], parts[4])
        with made.constraint_scope(chain):
            return calls(lambda: ask(made, expr))

    assert work(80) < 1.2 * work(20)


def test_maxima_of_many_values() -> None:
    def work(count: int) -> int:
        return calls(lambda: Analyzer().simplify(reduce(T.Max, variables(count))))

    assert work(60) < 5 * work(30)
