"""Brute force over small boxes of integers."""

import itertools
from collections.abc import Iterator, Mapping

from relaxpy.ir.tir import expr as tir
from tests.fuzz import scalars

Env = dict[tir.Var, int]


def box(**sides: range) -> tuple[tuple[tir.Var, ...], dict[tir.Var, range]]:
    """int32 variables of these names, and a table of their values."""
    table = {tir.Var(name, "int32"): values for name, values in sides.items()}
    return tuple(table), table


def points(sides: Mapping[tir.Var, range]) -> Iterator[Env]:
    """Every assignment of the variables."""
    for values in itertools.product(*sides.values()):
        yield dict(zip(sides, values, strict=True))


def evaluate(expr: tir.PrimExpr, env: Mapping[tir.Var, int]) -> int:
    """The value over unbounded integers. Errors: NoValueError where a divisor is 0."""
    return int(scalars.evaluate(expr, dict(env), exact=False))  # type: ignore[arg-type]


def value(expr: tir.PrimExpr, env: Mapping[tir.Var, int]) -> int | None:
    """The value, None where a divisor is 0."""
    try:
        return evaluate(expr, env)
    except scalars.NoValueError:
        return None


def holds(expr: tir.PrimExpr, env: Env) -> bool:
    """Whether a condition holds; not where it has no value."""
    return bool(value(expr, env))
