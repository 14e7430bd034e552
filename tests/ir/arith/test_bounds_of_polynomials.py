"""What is proved of a polynomial of sizes holds for all their values."""

from collections.abc import Callable, Mapping
from functools import reduce
from itertools import product

import pytest
from hypothesis import given, strategies as st

from relaxpy import tir
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.tir import PrimExpr, Var
from tests.counting import calls

N, K, L = (Var(name, "int64") for name in "nki")
SIZES = {N, K}
BINARY = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
}


def number(value: int) -> PrimExpr:
    return tir.IntImm("int64", value)


def combined(parts: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    """Sums, products, choices and quotients of `parts`."""
    operations = (tir.Add, tir.Sub, tir.Mul, tir.Mul, tir.Min, tir.Max)
    choices = st.tuples(st.sampled_from(operations), parts, parts)
    divisions = st.tuples(
        st.sampled_from((tir.FloorDiv, tir.FloorMod)), parts, st.integers(1, 4).map(number)
    )
    return st.one_of(choices, divisions).map(lambda t: t[0](t[1], t[2]))


def expressions(*given_parts: PrimExpr) -> st.SearchStrategy[PrimExpr]:
    leaves = st.one_of(
        st.sampled_from([N, K, L, *given_parts, *given_parts]), st.integers(-2, 5).map(number)
    )
    return st.recursive(leaves, combined, max_leaves=6)


def value(expr: PrimExpr, values: Mapping[PrimExpr, int]) -> int:
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, tir.IntImm):
        return expr.value
    result = BINARY[type(expr).__name__](value(expr.a, values), value(expr.b, values))
    assert isinstance(result, int)
    return result


@given(st.data())
def test_what_is_proved_holds(data: st.DataObject) -> None:
    """One part occurs several times, as the size of a buffer in the bounds of loops."""
    part = data.draw(combined(expressions()))
    left, right = (data.draw(expressions(part)) for _ in range(2))
    bound = data.draw(st.integers(-2, 2))
    if not as_poly(left).exceeds(as_poly(right), bound, SIZES):
        return
    for n, k, i in product(range(5), range(5), range(-3, 4)):
        values = {N: n, K: k, L: i}
        assert value(left, values) - value(right, values) >= bound


def test_a_choice_that_is_also_in_a_product() -> None:
    """A smaller value makes a product smaller, too, which is subtracted here."""
    size = tir.Max(N, number(1))
    assert as_poly(size).is_at_least(1, SIZES)
    assert not as_poly(size).exceeds(as_poly(size * size), 0, SIZES)
    assert as_poly(size * size + size).is_at_least(0, SIZES)


def nested_minimum(size: int) -> PrimExpr:
    """Either choice may be bounded before the other, at each level of the nested one."""
    unknown = [Var(f"v{i}", "int64") for i in range(size)]
    return tir.Max(K, L) - reduce(tir.Min, unknown, N)


def cut_sizes(size: int) -> PrimExpr:
    """The dimension of a concatenation of slices, less an unknown one."""
    cuts = [tir.Max(Var(f"v{i}", "int64") - i, number(0)) for i in range(size)]
    return reduce(tir.Add, cuts) - L


@pytest.mark.parametrize(("make", "size", "most"), [(nested_minimum, 8, 2.5), (cut_sizes, 3, 8)])
def test_work_is_not_exponential_in_choices(
    make: Callable[[int], PrimExpr], size: int, most: float
) -> None:
    once, twice = as_poly(make(size)), as_poly(make(2 * size))
    first = calls(lambda: once.is_at_least(1, SIZES))
    assert calls(lambda: twice.is_at_least(1, SIZES)) < most * first


def test_a_sum_of_any_number_of_choices_is_proved() -> None:
    sizes = [Var(f"v{i}", "int64") for i in range(100)]
    choices = reduce(tir.Add, [tir.Max(size - 3, number(0)) for size in sizes])
    assert as_poly(choices).is_at_least(0, set(sizes))
