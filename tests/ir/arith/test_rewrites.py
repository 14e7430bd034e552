"""Rewrites by family: what goes in, what has the same simplest form, and under which conditions."""

import random
from collections.abc import Iterator
from itertools import product

import pytest

from relaxpy.arith import Analyzer, ConstIntBound
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops
from tests.fuzz.integers import Integers
from tests.fuzz.scalars import NoValueError, evaluate
from tests.fuzz.seed import COUNT
from tests.ir.arith.boxes import holds, points, value
from tests.ir.arith.rewrites import Rewrite, names, rewrites

E = tir.PrimExpr
x, y, z = (tir.Var(name, "int32") for name in "xyz")
true, false, c = ops.const(True), ops.const(False), ops.const


def casts() -> Iterator[Rewrite]:
    dtypes = ("float32", "float16", "int32", "int8", "bool")
    for target in dtypes:
        yield Rewrite(tir.Cast(target, x - x), c(0, target))
        yield Rewrite(tir.Cast(target, tir.EQ(x, x)), c(1, target))
        for source in dtypes:
            for number in range(2 if "bool" in (source, target) else 4):
                yield Rewrite(tir.Cast(target, c(number, source)), c(number, target))


def cancelled() -> Iterator[Rewrite]:
    for dtype in ("int8", "int32", "int64", "uint8", "uint32", "uint64"):
        var = tir.Var("v", dtype)
        yield Rewrite(var - var, c(0, dtype))
        yield Rewrite(tir.EQ(var, var), true)
        yield Rewrite(tir.NE(var, var), false)


def leading_zeros() -> Iterator[Rewrite]:
    for dtype, number, zeros in (
        ("int32", 0, 32),
        ("int32", 1, 31),
        ("int32", 128, 24),
        ("int64", 0, 64),
        ("int64", 128, 56),
    ):
        yield Rewrite(tir.Call("int32", "tir.clz", (c(number, dtype),)), c(zeros))


ROWS = [*rewrites("int32"), *casts(), *cancelled(), *leading_zeros()]


def test_no_row_compares_an_expression_with_itself() -> None:
    assert [str(row) for row in ROWS if row.before is row.after] == []


def variables(exprs: list[E]) -> list[tir.Var]:
    """The free variables; those that a Let binds are not free."""
    nodes = [node for expr in exprs for node in walk(expr)]
    bound = {node.var for node in nodes if isinstance(node, tir.Let)}
    return [v for v in dict.fromkeys(nodes) if isinstance(v, tir.Var) and v not in bound]


def is_integer(row: Rewrite) -> bool:
    nodes = [node for side in (row.before, row.after) for node in walk(side)]
    unknown = (Op("tir.clz"), Op("tir.likely"))
    return not any(
        node.dtype.startswith("float") or (isinstance(node, tir.Call) and node.op in unknown)
        for node in nodes
        if isinstance(node, E)
    )


def drawn(chosen: random.Random, dtype: str, reach: int) -> int:
    if dtype == "bool":
        return chosen.randint(0, 1)
    return chosen.randint(0, min(reach, 255)) if "uint" in dtype else chosen.randint(-reach, reach)


def inequality(row: Rewrite) -> str | None:
    """A point that satisfies the conditions, at which the sides and the simplified form differ.

    Points are drawn, and evaluated without the simplifier's code.
    """
    made = Analyzer()
    with made.constraint_scope(ops.all_of(true, *row.conditions)):
        simple = made.simplify(row.before)
    free = variables([row.before, row.after, simple, *row.conditions])
    chosen, compared = random.Random(f"{row.before}"), 0
    for reach in (4, 12, 40, 400) * 40:
        env = {v: drawn(chosen, v.dtype, reach) for v in free}
        expected = value(row.before, env)
        if expected is None or not all(holds(condition, env) for condition in row.conditions):
            continue
        if not value(row.after, env) == value(simple, env) == expected:
            return f"{row}, simplified to {simple}, at {env}"
        compared += 1
    return None if compared >= (5 if free else 1) else f"{row}: few points satisfy the conditions"


def test_both_sides_and_the_simplified_form_have_equal_values() -> None:
    rows = list(filter(is_integer, ROWS))
    assert len(rows) > 300
    assert [found for found in map(inequality, rows) if found] == []


def other_form(row: Rewrite) -> Iterator[str]:
    """The forms of a row that are not what it says."""
    made = Analyzer()
    with made.constraint_scope(ops.all_of(true, *row.conditions)):
        found = made.simplify(row.before)
        if found is not made.simplify(row.after) or (row.sign == "=>" and found is not row.after):
            yield f"{row}: simplify gives {found}"
    if row.sign == "=>" and not row.conditions and simplify(row.before) is not row.after:
        yield f"{row}: the prover has {simplify(row.before)}"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_both_sides_have_one_form(dtype: str) -> None:
    rows = ROWS if dtype == "int32" else list(rewrites(dtype))
    assert len(rows) > 300
    assert [found for row in rows for found in other_form(row)] == []


STAY = """
Div(f, c(27.0, "float32"))
tmod(x - 10, 2)
flm(x + 1, 2)
flm(x + 1, 2) * 8192
all_of(x < 16, flm(x, 5) < 2)
x - y
lo(x, y)
tmod(y - 1, 3).equal(0)
fld(flm(x, 12), 4)
flm(fld(x, 4), n)
fld(flm(x, 12), 5)
hi(lo(x, y), 0)
z - lo(x, y)
"""


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_is_simple_already_is_left_alone(dtype: str) -> None:
    for text in STAY.strip().splitlines():
        expr = eval(text, {"Div": tir.Div, "f": tir.Var("f", "float32"), **names(dtype)})
        assert Analyzer().simplify(expr) is simplify(expr) is expr


@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_random_expressions_keep_their_values(seed: int) -> None:
    chosen = random.Random(seed)
    sides = {x: range(-5, 6), y: range(-4, 5), z: range(-3, 4)}
    made = Analyzer()
    for var in chosen.sample([x, y], chosen.randint(0, 2)):
        low = chosen.randint(-3, 2)
        sides[var] = range(low, low + chosen.randint(1, 6))
        made.update(var, ConstIntBound(low, sides[var].stop - 1))
    given = Integers(chosen, [x, y, z]).number(chosen.randint(2, 9))
    simple, bound, known = (
        made.simplify(given),
        made.const_int_bound(given),
        made.modular_set(given),
    )
    for env in points(sides):
        number = value(given, env)
        if number is not None:
            assert value(simple, env) == number, f"{given} gives {simple} at {env}"
            assert bound.min_value <= number <= bound.max_value
            apart = number - known.base
            assert apart % known.coeff == 0 if known.coeff else apart == 0


@pytest.mark.parametrize(
    ("dtype", "bounds", "build"),
    [
        ("int32", [(2**31 - 8, 2**31 - 4), (-4, 5)], lambda a, b: (a + b) // -8),
        ("int32", [(-(2**31), -(2**31) + 3), (-3, 3)], lambda a, b: (a + b) // -4),
        ("int8", [(6, 15), (6, 15)], lambda a, b: (a - a) * a > a - 54 + a * a),
        ("int8", [(120, 127), (-5, 7)], lambda a, b: a - 100 > b - 90),
        ("int8", [(100, 127), (-27, 0)], lambda a, b: (a + b) // 16 * 16 + (a + b) % 16),
        ("int8", [(0, 127), (0, 127)], lambda a, b: a * 3 // 3 <= b),
    ],
)
def test_no_rewriting_overflows_where_the_original_does_not(dtype, bounds, build) -> None:
    variables = [tir.Var(name, dtype) for name in "ab"]
    analyzer = Analyzer()
    for var, (low, high) in zip(variables, bounds, strict=True):
        analyzer.update(var, ConstIntBound(low, high))
    expr = build(*variables)
    found = analyzer.simplify(expr)
    for values in product(*(range(low, high + 1) for low, high in bounds)):
        env = dict(zip(variables, values, strict=True))
        try:
            expected = evaluate(expr, env)
        except NoValueError:  # the original overflows
            continue
        assert evaluate(found, env) == expected, (found, values)
