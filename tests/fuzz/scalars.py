"""Random scalar and vector expressions of every kind, and what they are worth by definition.

The evaluator shares nothing with the package but the classes of its nodes: signed integers that
leave their datatype, divisions by zero and shifts out of range have no value; unsigned integers
wrap around; floats are NumPy's scalars.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer

Value = Any
Env = Mapping[tir.Var, Value]
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
_FLOAT_TYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}


class NoValueError(Exception):
    """The expression has no value here."""


def limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of a datatype."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def stored(value: Value, dtype: str) -> Value:
    """`value` as the datatype stores it. Errors: NoValueError where a signed one cannot."""
    if dtype in _FLOAT_TYPES:
        kind = np.dtype(_FLOAT_TYPES[dtype])
        with np.errstate(all="ignore"):
            return (
                np.asarray(value).astype(kind)[()] if isinstance(value, int) else kind.type(value)
            )
    if dtype == "bool":
        return bool(value)
    low, high = limits(dtype)
    if dtype.startswith("u"):
        return int(value) % (high + 1)
    if not low <= value <= high:
        raise NoValueError
    return int(value)


def evaluate(expr: tir.PrimExpr, env: Env, *, exact: bool = True) -> Value:
    """The value at `env`, of a vector its lanes as a tuple.

    Unless `exact`, signed integers are unbounded: what a simplifier wrote may pass beyond the
    datatype on the way to a value that lies in it.
    """
    return _Evaluator(exact).of(expr, env)


def same(a: Value, b: Value) -> bool:
    """Whether two values are one, NaN being itself and zeros having signs."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        pair = isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b)
        return pair and all(map(same, a, b))
    if isinstance(a, (bool, int)) and isinstance(b, (bool, int)):
        return a == b
    if type(a) is not type(b):
        return False
    if a != a or b != b:
        return bool(a != a and b != b)
    return bool(a == b) and bool(np.signbit(a) == np.signbit(b))


class _Evaluator:
    def __init__(self, exact: bool) -> None:
        self.exact = exact

    def fits(self, value: Value, dtype: str) -> Value:
        if not self.exact and dtype in SIGNED:
            return value
        return stored(value, dtype)

    def of(self, expr: tir.PrimExpr, env: Env) -> Value:
        match expr:
            case tir.Var():
                return env[expr]
            case tir.IntImm(value=value):
                return bool(value) if expr.dtype == "bool" else value
            case tir.FloatImm(value=value):
                return stored(value, expr.dtype)
            case tir.Let(var=var, value=value, body=body):
                return self.of(body, {**env, var: self.of(value, env)})
            case tir.Select(condition=c, true_value=a, false_value=b):
                test, yes, no = (self.of(part, env) for part in (c, a, b))
                if isinstance(test, tuple):
                    return tuple(y if t else n for t, y, n in zip(test, yes, no, strict=True))
                return yes if test else no
            case tir.And(a=a, b=b) | tir.Or(a=a, b=b):
                return self.junction(expr, a, b, env)
            case tir.Not(a=a):
                inner = self.of(a, env)
                return tuple(not i for i in inner) if isinstance(inner, tuple) else not inner
            case tir.Ramp(base=base, stride=stride, lanes=int(lanes)):
                start, step = self.of(base, env), self.of(stride, env)
                element = str(expr.dtype).split("x")[0]
                return tuple(self.fits(start + k * step, element) for k in range(lanes))
            case tir.Broadcast(value=value, lanes=int(lanes)):
                return (self.of(value, env),) * lanes
            case tir.BinaryOpExpr(a=a, b=b):
                p, q = self.of(a, env), self.of(b, env)
                element = str(a.dtype).split("x")[0]
                if isinstance(p, tuple):
                    pairs = zip(p, q, strict=True)
                    return tuple(self.binary(type(expr), x, y, element) for x, y in pairs)
                return self.binary(type(expr), p, q, element)
            case tir.Cast(value=value):
                source = str(value.dtype).split("x")[0]
                target, inner = str(expr.dtype).split("x")[0], self.of(value, env)
                if isinstance(inner, tuple):
                    return tuple(self.cast(i, source, target) for i in inner)
                return self.cast(inner, source, target)
            case BufferLoad(buffer=buffer, indices=indices):
                return self.load(buffer, [self.of(index, env) for index in indices])
            case tir.Call(args=args):
                return self.call(expr.op.name, args, expr.dtype, env)
            case _:
                raise AssertionError(type(expr))

    def junction(self, expr: tir.PrimExpr, a: tir.PrimExpr, b: tir.PrimExpr, env: Env) -> Value:
        first, disjunction = self.of(a, env), isinstance(expr, tir.Or)
        if isinstance(first, tuple):
            second = self.of(b, env)
            pairs = zip(first, second, strict=True)
            return tuple((p or q) if disjunction else (p and q) for p, q in pairs)
        if bool(first) == disjunction:
            return disjunction
        return bool(self.of(b, env))

    def binary(self, kind: type[tir.PrimExpr], p: Value, q: Value, dtype: str) -> Value:
        if issubclass(kind, tir.CmpExpr):
            return bool(
                {
                    tir.EQ: p == q,
                    tir.NE: p != q,
                    tir.LT: p < q,
                    tir.LE: p <= q,
                    tir.GT: p > q,
                    tir.GE: p >= q,
                }[kind]
            )
        if dtype in FLOATS:
            return self.floating(kind, p, q, dtype)
        p, q = int(p), int(q)
        if kind in (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod):
            if q == 0:
                raise NoValueError
            toward = abs(p) // abs(q) * (-1 if (p < 0) != (q < 0) else 1)
            table = {
                tir.Div: toward,
                tir.Mod: p - toward * q,
                tir.FloorDiv: p // q,
                tir.FloorMod: p % q,
            }
            return self.fits(table[kind], dtype)
        table = {
            tir.Add: p + q,
            tir.Sub: p - q,
            tir.Mul: p * q,
            tir.Min: min(p, q),
            tir.Max: max(p, q),
        }
        return self.fits(table[kind], dtype)

    @staticmethod
    def floating(kind: type[tir.PrimExpr], p: Value, q: Value, dtype: str) -> Value:
        with np.errstate(all="ignore"):
            match kind:
                case tir.Add:
                    found = p + q
                case tir.Sub:
                    found = p - q
                case tir.Mul:
                    found = p * q
                case tir.Div:
                    found = p / q
                case tir.Min:
                    found = np.minimum(p, q)
                case tir.Max:
                    found = np.maximum(p, q)
                case _:
                    raise NoValueError
            if kind in (tir.Min, tir.Max) and p == q and np.signbit(p) != np.signbit(q):
                raise NoValueError  # which zero of the two is open
            return stored(found, dtype)

    def cast(self, value: Value, source: str, target: str) -> Value:
        if target == "bool":
            return bool(value != 0)
        if target in FLOATS:
            return stored(value if source in FLOATS else int(value), target)
        if source in FLOATS:
            if not np.isfinite(value):
                raise NoValueError
            low, high = limits(target)
            if not low <= int(value) <= high:
                raise NoValueError
        return stored(int(value), target)

    @staticmethod
    def load(buffer: Buffer, indices: list[Value]) -> Value:
        number = zlib.crc32(repr((buffer.name, *map(int, indices))).encode()) % 11 - 3
        return stored(number, buffer.dtype)

    def call(self, name: str, args: tuple[tir.PrimExpr, ...], dtype: str, env: Env) -> Value:
        if name == "tir.if_then_else":
            return self.of(args[1] if self.of(args[0], env) else args[2], env)
        values = [self.of(arg, env) for arg in args]
        if name == "tir.likely":
            return values[0]
        if any(isinstance(value, tuple) for value in values):
            raise NoValueError
        if name in ("tir.shift_left", "tir.shift_right") and not 0 <= values[1] < _bits(dtype):
            raise NoValueError
        numbers = [int(value) for value in values]
        match name:
            case "tir.shift_left":
                found = numbers[0] << numbers[1]
            case "tir.shift_right":
                found = numbers[0] >> numbers[1]
            case "tir.bitwise_and":
                found = numbers[0] & numbers[1]
            case "tir.bitwise_or":
                found = numbers[0] | numbers[1]
            case "tir.bitwise_xor":
                found = numbers[0] ^ numbers[1]
            case "tir.bitwise_not":
                found = ~numbers[0]
            case "tir.popcount":
                found = (numbers[0] % 2 ** _bits(args[0].dtype)).bit_count()
            case "tir.clz":
                bits = _bits(args[0].dtype)
                found = bits - (numbers[0] % 2**bits).bit_length()
            case _:
                raise AssertionError(name)
        return self.fits(found, dtype)


def _bits(dtype: str) -> int:
    return 1 if dtype == "bool" else int(dtype.removeprefix("u").removeprefix("int"))


_ARITHMETIC = (tir.Add, tir.Sub, tir.Mul, tir.Add, tir.Sub)
_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_COMPARISONS = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE)
_BITS = ("tir.bitwise_and", "tir.bitwise_or", "tir.bitwise_xor")
_SMALL = (-7, -4, -3, -2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 8, 12, 16)


class Expressions:
    """Random expressions over a few variables of each datatype in use."""

    def __init__(self, chosen: random.Random, dtypes: tuple[str, ...] | None = None) -> None:
        self.chosen = chosen
        every = (*SIGNED, *UNSIGNED, "bool", *FLOATS)
        self.dtypes = dtypes or tuple(dict.fromkeys(["int32", "int64", *chosen.sample(every, k=3)]))
        names = {"int32": ("x", "y", "z"), "int64": ("m", "n")}
        self.variables = {
            dtype: [tir.Var(name, dtype) for name in names.get(dtype, ("p", "q"))]
            for dtype in self.dtypes
        }
        self.buffers: dict[str, Buffer] = {}
        self.huge = chosen.random() < 0.25

    def literal(self, dtype: str) -> tir.PrimExpr:
        """A literal: small, at an end of the datatype, or near a power of two."""
        chosen = self.chosen
        if dtype in FLOATS:
            special = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 65504.0, 1e-3)
            value = chosen.choice((*special, float("inf"), float("nan")))
            return tir.FloatImm(dtype, value)
        low, high = limits(dtype)
        value = chosen.choice(_SMALL)
        if self.huge and chosen.random() < 0.5:
            near = chosen.choice((low, high, 2**31, 2**62, 2**63 - 1, 2**32, 255, 2**15))
            value = near + chosen.choice((-2, -1, 0, 1, 2))
        return tir.IntImm(dtype, max(low, min(high, value)))

    def leaf(self, dtype: str) -> tir.PrimExpr:
        chosen = self.chosen
        own = self.variables.get(dtype)
        if own and chosen.random() < 0.65:
            return chosen.choice(own)
        return self.literal(dtype)

    def number(self, dtype: str, size: int) -> tir.PrimExpr:
        """A scalar of an integer or a floating datatype with up to `size` leaves."""
        chosen = self.chosen
        if dtype == "bool":
            return self.condition(size)
        if size < 2:
            return self.leaf(dtype)
        kind, share = chosen.random(), chosen.randint(1, size - 1)
        if kind < 0.08:
            source = chosen.choice(self.dtypes)
            return tir.Cast(dtype, self.number(source, size - 1))
        if kind < 0.13:
            var = tir.Var("t", chosen.choice([d for d in self.dtypes if d != "bool"]))
            value = self.number(str(var.dtype), share)
            self.variables[str(var.dtype)].append(var)
            body = self.number(dtype, size - share)
            self.variables[str(var.dtype)].remove(var)
            return tir.Let(var, value, body)
        if kind < 0.17:
            index = self.number(chosen.choice(("int32", "int64")), size - 1)
            name = f"B{chosen.randint(0, 1)}_{dtype}"
            buffer = self.buffers.get(name)
            if buffer is None:
                buffer = self.buffers[name] = decl_buffer((64,), dtype, name)
            return BufferLoad(buffer, [index])
        one, other = self.number(dtype, share), self.number(dtype, size - share)
        if kind < 0.27:
            return tir.Select(self.condition(chosen.randint(1, 3)), one, other)
        if kind < 0.33:
            test = self.condition(chosen.randint(1, 3))
            return tir.Call(dtype, "tir.if_then_else", (test, one, other))
        if kind < 0.43:
            return chosen.choice((tir.Min, tir.Max))(one, other)
        if dtype in FLOATS:
            return chosen.choice((*_ARITHMETIC, tir.Div))(one, other)
        if kind < 0.62:
            by = self.literal(dtype) if chosen.random() < 0.7 else other
            return chosen.choice(_DIVISIONS)(one, by)
        if kind < 0.69:
            return self.bits(dtype, one, other)
        return chosen.choice(_ARITHMETIC)(one, other)

    def bits(self, dtype: str, one: tir.PrimExpr, other: tir.PrimExpr) -> tir.PrimExpr:
        chosen = self.chosen
        pick = chosen.random()
        if pick < 0.5:
            return tir.Call(dtype, chosen.choice(_BITS), (one, other))
        if pick < 0.8:
            by = tir.IntImm(dtype, min(chosen.randint(0, 8), limits(dtype)[1]))
            return tir.Call(dtype, chosen.choice(("tir.shift_left", "tir.shift_right")), (one, by))
        if pick < 0.9:
            return tir.Call(dtype, "tir.bitwise_not", (one,))
        return tir.Call(dtype, chosen.choice(("tir.popcount", "tir.clz")), (one,))

    def condition(self, size: int) -> tir.PrimExpr:
        """A Boolean expression of up to `size` comparisons."""
        chosen = self.chosen
        if size < 2 or chosen.random() < 0.4:
            if "bool" in self.variables and chosen.random() < 0.2:
                return chosen.choice(self.variables["bool"])
            dtype = chosen.choice([d for d in self.dtypes if d != "bool"])
            return chosen.choice(_COMPARISONS)(
                self.number(dtype, chosen.randint(1, 3)), self.number(dtype, chosen.randint(1, 2))
            )
        kind = chosen.random()
        first = self.condition(size - 1)
        if kind < 0.2:
            return tir.Not(first)
        if kind < 0.26:
            return tir.Call("bool", "tir.likely", (first,))
        if kind < 0.32:
            return tir.Select(self.condition(1), first, self.condition(1))
        return chosen.choice((tir.And, tir.Or))(first, self.condition(1))

    def vector(self, dtype: str, lanes: int, size: int) -> tir.PrimExpr:
        """A vector, lane by lane made of ramps and copies."""
        chosen = self.chosen
        if size < 2:
            base = self.number(dtype, chosen.randint(1, 3))
            if chosen.random() < 0.5 and dtype not in FLOATS:
                stride = self.literal(dtype) if chosen.random() < 0.8 else self.leaf(dtype)
                return tir.Ramp(base, stride, lanes)
            return tir.Broadcast(base, lanes)
        share = chosen.randint(1, size - 1)
        one, other = self.vector(dtype, lanes, share), self.vector(dtype, lanes, size - share)
        kind = chosen.random()
        if kind < 0.15:
            test: tir.PrimExpr = chosen.choice(_COMPARISONS)(one, other)
            return tir.Select(test, one, other)
        if kind < 0.3:
            return chosen.choice((tir.Min, tir.Max))(one, other)
        if kind < 0.55 and dtype not in FLOATS:
            return chosen.choice(_DIVISIONS)(one, other)
        return chosen.choice(_ARITHMETIC)(one, other)

    def any(self, size: int) -> tir.PrimExpr:
        """An expression of any kind and datatype."""
        chosen = self.chosen
        dtype = chosen.choice(self.dtypes)
        if chosen.random() < 0.12 and dtype != "bool":
            return self.vector(dtype, chosen.choice((2, 4)), min(size, 4))
        return self.number(dtype, size)

    def point(self) -> dict[tir.Var, Value]:
        """Values of all variables."""
        return {var: self.value(dtype) for dtype, own in self.variables.items() for var in own}

    def value(self, dtype: str) -> Value:
        """A value of a datatype: mostly small, sometimes at its ends."""
        chosen = self.chosen
        if dtype in FLOATS:
            special = (0.0, -0.0, float("nan"), float("inf"), float("-inf"))
            return stored(chosen.choice((*special, 1.0, -1.5, 3.0, 60000.0)), dtype)
        low, high = limits(dtype)
        if chosen.random() < 0.15:
            return stored(chosen.choice((low, high, low + 1, high - 1)), dtype)
        return stored(max(low, min(high, chosen.randint(-9, 12))), dtype)


def text(expr: tir.PrimExpr) -> str:
    """`expr` as constructors, to be pasted into a test."""
    match expr:
        case tir.Var(name=name):
            return f"{name}_{expr.dtype}"
        case tir.ConstExpr(value=value):
            return f"{type(expr).__name__}({str(expr.dtype)!r}, {value!r})"
        case tir.Cast(value=value):
            return f"Cast({str(expr.dtype)!r}, {text(value)})"
        case tir.Call(args=args):
            return f"Call({str(expr.dtype)!r}, {expr.op.name!r}, [{', '.join(map(text, args))}])"
        case BufferLoad(buffer=buffer, indices=indices):
            return f"{buffer.name}[{', '.join(map(text, indices))}]"
        case tir.Let(var=var, value=value, body=body):
            return f"Let({text(var)}, {text(value)}, {text(body)})"
        case _:
            names = type(expr).__match_args__
            parts = (getattr(expr, name) for name in names)
            shown = (text(p) if isinstance(p, tir.PrimExpr) else repr(p) for p in parts)
            return f"{type(expr).__name__}({', '.join(shown)})"
