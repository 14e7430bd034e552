"""Unsigned arithmetic that goes round beside signed arithmetic that does not overflow."""

from __future__ import annotations

import itertools
import random

import pytest

from relaxpy.arith import Analyzer
from relaxpy.ir.tir import expr as tir, ops
from tests.ir.arith.integers import UndefinedError, evaluate

E = tir.PrimExpr
Env = dict[tir.Var, int]
a, b, i = tir.Var("a", "uint8"), tir.Var("b", "uint8"), tir.Var("i", "int32")
BYTES, INTS = (0, 1, 2, 7, 100, 127, 128, 200, 255), (-9, -2, -1, 0, 1, 3, 12)
LITERALS = {"uint8": (0, 1, 2, 3, 5, 7, 100, 200, 255), "int32": (-3, -1, 0, 1, 2, 5)}


def held(value: int, expr: E) -> int:
    """`value` as the datatype of `expr` holds it; a signed value that it cannot hold is none."""
    low, high = ops.int_range(expr.dtype)
    if expr.dtype.family == "uint" and not expr.dtype.is_bool:
        return value % (high + 1)
    if not low <= value <= high:
        raise UndefinedError
    return value


def typed(expr: E, env: Env) -> int:
    """The value of an expression where every operation keeps to its datatype."""
    match expr:
        case tir.IntImm() | tir.Var():
            return evaluate(expr, env)
        case tir.Cast(value=inner):
            return held(typed(inner, env), expr)
        case tir.Select(condition=test, true_value=yes, false_value=no):
            both = typed(yes, env), typed(no, env)
            return both[0] if typed(test, env) else both[1]
        case tir.BinaryOpExpr(a=x, b=y) | tir.And(a=x, b=y):
            names = {tir.Var("p", "int64"): typed(x, env), tir.Var("q", "int64"): typed(y, env)}
            if isinstance(expr, tir.And):
                p, q = (bool(k) for k in names.values())
                return int(p or q) if isinstance(expr, tir.Or) else int(p and q)
            return held(evaluate(type(expr)(*names), names), expr)
        case _:
            raise AssertionError(expr)


def number(chosen: random.Random, size: int, dtype: str) -> E:
    if size < 2:
        leaves = [a, b, a] if dtype == "uint8" else [i, i]
        return chosen.choice([*leaves, ops.const(chosen.choice(LITERALS[dtype]), dtype)])
    share, kind = chosen.randint(1, size - 1), chosen.random()
    if kind < 0.15:
        return tir.Cast(dtype, number(chosen, size - 1, "int32" if dtype == "uint8" else "uint8"))
    if kind < 0.3:
        divide = chosen.choice([tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod])
        by = ops.const(chosen.choice([2, 3, 4, 8]), dtype)
        return divide(number(chosen, size - 1, dtype), by)
    one, other = number(chosen, share, dtype), number(chosen, size - share, dtype)
    if kind < 0.55:
        if kind < 0.45:
            return chosen.choice([tir.Min, tir.Max])(one, other)
        return tir.Select(truth(chosen, 2), one, other)
    return chosen.choice([tir.Add, tir.Sub, tir.Mul])(one, other)


def truth(chosen: random.Random, size: int) -> E:
    dtype = chosen.choice(["uint8", "int32"])
    compare = chosen.choice([tir.LT, tir.LE, tir.GE, tir.EQ, tir.NE])
    found = compare(number(chosen, size - 1, dtype), number(chosen, 1, dtype))
    if size < 4:
        return found
    return chosen.choice([tir.And, tir.Or])(found, truth(chosen, 3))


@pytest.mark.parametrize("seed", range(60))
def test_values_bounds_and_residues_hold_in_their_datatypes(seed: int) -> None:
    chosen = random.Random(seed)
    dtype = chosen.choice(["uint8", "int32"])
    given = truth(chosen, 4) if seed % 3 == 0 else number(chosen, chosen.randint(2, 7), dtype)
    made = Analyzer()
    simple, bound, known = (
        made.simplify(given),
        made.const_int_bound(given),
        made.modular_set(given),
    )
    for x, y, z in itertools.product(BYTES, BYTES, INTS):
        env = {a: x, b: y, i: z}
        try:
            value = typed(given, env)
        except UndefinedError:
            continue
        assert typed(simple, env) == value, f"{given} gives {simple} at {env}"
        assert bound.min_value <= value <= bound.max_value
        apart = value - known.base
        assert given.dtype.is_bool or (apart % known.coeff == 0 if known.coeff else apart == 0)
