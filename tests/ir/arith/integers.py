"""The value of an integer expression, straight from the definitions."""

from collections.abc import Callable, Mapping

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
