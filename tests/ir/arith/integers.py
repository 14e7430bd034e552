"""Integer expressions for tests: a direct evaluator, and hypothesis strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir


class UndefinedError(Exception):
    """A division by zero: the expression has no value."""


def evaluate(expr: tir.PrimExpr, env: Mapping[tir.Var, int]) -> int:
    """The value of an expression over unbounded integers, straight from the definitions."""
    match expr:
        case tir.IntImm(value=value):
            return value
        case tir.Var():
            return env[expr]
        case tir.Cast(value=value):
            return evaluate(value, env)
        case tir.Let(var=var, value=value, body=body):
            return evaluate(body, {**env, var: evaluate(value, env)})
        case tir.Select(condition=c, true_value=a, false_value=b):
            both = evaluate(a, env), evaluate(b, env)
            return both[0] if evaluate(c, env) else both[1]
        case tir.Not(a=a):
            return int(not evaluate(a, env))
        case tir.Or(a=a, b=b):
            return int(bool(evaluate(a, env)) | bool(evaluate(b, env)))
        case tir.And(a=a, b=b):
            return int(bool(evaluate(a, env)) & bool(evaluate(b, env)))
        case tir.BinaryOpExpr(a=a, b=b):
            return _binary(type(expr), evaluate(a, env), evaluate(b, env))
        case tir.Call(op=Op(name="tir.if_then_else"), args=(c, a, b)):
            return evaluate(a if evaluate(c, env) else b, env)
        case tir.Call(op=op, args=args):
            assert isinstance(op, Op)
            values = [evaluate(a, env) for a in args]
            return _CALLS[op.name](*values)
        case _:
            raise AssertionError(expr)


_CALLS: dict[str, Callable[..., int]] = {
    "tir.shift_left": lambda x, y: x << y,
    "tir.shift_right": lambda x, y: x >> y,
    "tir.bitwise_and": lambda x, y: x & y,
}


def _binary(kind: type[tir.BinaryOpExpr], x: int, y: int) -> int:
    if kind in (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod):
        if y == 0:
            raise UndefinedError
        toward_zero = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return {
            tir.FloorDiv: x // y,
            tir.FloorMod: x % y,
            tir.Div: toward_zero,
            tir.Mod: x - y * toward_zero,
        }[kind]
    return int(
        {
            tir.Add: x + y,
            tir.Sub: x - y,
            tir.Mul: x * y,
            tir.Min: min(x, y),
            tir.Max: max(x, y),
            tir.EQ: x == y,
            tir.NE: x != y,
            tir.LT: x < y,
            tir.LE: x <= y,
            tir.GT: x > y,
            tir.GE: x >= y,
        }[kind]
    )


VARIABLES = tuple(tir.Var(name, "int64") for name in "xyz")
_LITERALS = (-7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12)
_ARITHMETIC = (tir.Add, tir.Add, tir.Sub, tir.Sub, tir.Mul, tir.Min)
_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_COMPARISONS = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE)


def literal(value: int) -> tir.PrimExpr:
    return tir.IntImm("int64", value)


@st.composite
def expressions(
    draw: st.DrawFn, variables: Sequence[tir.Var] = VARIABLES, size: int = 8
) -> tir.PrimExpr:
    """Integer expressions over `variables` with up to `size` leaves, divisions by anything too."""
    if size < 2 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([*variables, *variables, *map(literal, _LITERALS)]))
    share = draw(st.integers(1, size - 1))
    left = draw(expressions(variables, share))
    if draw(st.integers(0, 9)) == 0:
        return tir.Select(draw(_comparisons(variables, 2)), left, draw(expressions(variables, 2)))
    kind: type[tir.BinaryOpExpr] = draw(st.sampled_from([*_ARITHMETIC, *_DIVISIONS, tir.Max]))
    if kind in _DIVISIONS and draw(st.booleans()):
        return kind(left, literal(draw(st.sampled_from([v for v in _LITERALS if v]))))
    return kind(left, draw(expressions(variables, size - share)))


@st.composite
def _comparisons(draw: st.DrawFn, variables: Sequence[tir.Var], size: int) -> tir.PrimExpr:
    kind = draw(st.sampled_from(_COMPARISONS))
    return kind(draw(expressions(variables, size)), draw(expressions(variables, size)))


@st.composite
def conditions(
    draw: st.DrawFn, variables: Sequence[tir.Var] = VARIABLES, size: int = 3
) -> tir.PrimExpr:
    """Boolean expressions over up to `size` comparisons."""
    shape = draw(st.integers(0, 4)) if size > 1 else 0
    if shape < 2:
        return draw(_comparisons(variables, 4))
    first = draw(conditions(variables, size - 1))
    if shape == 2:
        return tir.Not(first)
    return (tir.And if shape == 3 else tir.Or)(first, draw(conditions(variables, 1)))
