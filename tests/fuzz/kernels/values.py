"""Expressions of a kernel as Python over scalars, for the oracle."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.fuzz.kernels import reading
from tests.fuzz.kernels.machine import Machine
from tests.fuzz.kernels.semantics import BITS, RefusedError, UndefinedError

_SYMBOLS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}
_PYTHON = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%"}
_COMPARISONS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_BINARY = {
    *("min", "max", "floordiv", "floormod", "truncdiv", "truncmod", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "shift_left", "shift_right", "pow", "fmod", "atan2", "hypot", "copysign"),
}
_UNARY = {
    *("exp", "exp2", "exp10", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf"),
    *("sigmoid", "floor", "ceil", "trunc", "round", "nearbyint", "fabs", "abs", "popcount"),
    *("bitwise_not", "clz"),
}


class Values:
    """Writes Python for expressions: `m` is the machine, names of the text are variables."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.scopes: list[dict[str, reading.Variable]] = [{}]
        self.taken: set[str] = {
            "m",
            "empty",
            "outer",
            "program",
            "range",
            "max",
            "bool",
            "int",
            "frozenset",
        }
        self.unbound: set[str] = set()
        """Shape variables without a value, which only `T.Let` gives them."""
        self.starts: dict[str, str] = {}

    # ---- text

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def indented(self, *, scope: bool = True) -> Iterator[None]:
        self.depth += 1
        if scope:
            self.scopes.append({})
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("pass")
        if scope:
            self.scopes.pop()
        self.depth -= 1

    def fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self.taken or keyword.iskeyword(found):
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found

    def define(self, name: str, dtype: str, rank: int = -1) -> str:
        variable = reading.Variable(self.fresh(name), dtype, rank)
        self.scopes[-1][name] = variable
        return variable.code

    def find(self, name: str) -> reading.Variable:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise reading.UnreadableError(f"{name} is not defined")

    # ---- expressions

    def index(self, node: ast.expr) -> str:
        """An integer."""
        value = self.value(node)
        if value.dtype and value.dtype not in BITS:
            raise reading.UnreadableError(f"index of {value.dtype}")
        return value.code

    def truth(self, node: ast.expr) -> str:
        """A condition."""
        value = self.value(node)
        if value.dtype not in ("bool", ""):
            raise reading.UnreadableError(f"condition of {value.dtype}")
        return value.code

    def as_type(self, value: reading.Value, dtype: str) -> reading.Value:
        """`value` converted to `dtype` as a store or an operand converts it."""
        if not dtype or value.dtype == dtype:
            return value
        if not value.dtype:
            kind = f"m.scalar('', {value.code}, {dtype!r})"
            return reading.Value(value.code if dtype in BITS else kind, dtype)
        return reading.Value(f"m.cast({value.dtype!r}, {dtype!r}, {value.code})", dtype)

    def typed(self, value: reading.Value) -> reading.Value:
        """`value`; a plain number is that of the datatype that it has as an expression."""
        if value.dtype:
            return value
        return self.as_type(value, f"{type(ast.literal_eval(value.code)).__name__}32")

    def _matching(self, a: reading.Value, b: reading.Value) -> tuple[reading.Value, reading.Value]:
        """Two operands in one datatype: a plain number takes the other's, the wider one wins."""
        if a.dtype == b.dtype:
            return a, b
        if not a.dtype:
            return self.as_type(a, b.dtype), b
        if not b.dtype:
            return a, self.as_type(b, a.dtype)
        both = a.dtype, b.dtype
        if all(d in BITS and not d.startswith("u") for d in both):
            wide = max(both, key=BITS.__getitem__)
            return self.as_type(a, wide), self.as_type(b, wide)
        raise reading.UnreadableError(f"operands of {both}")

    def _binary(self, name: str, a: reading.Value, b: reading.Value) -> reading.Value:
        if not a.dtype and not b.dtype:
            if name not in _PYTHON:
                raise reading.UnreadableError(f"{name} of plain numbers")
            return reading.Value(f"({a.code} {_PYTHON[name]} {b.code})", "")
        dropped = self._folded(name, a, b)
        a, b = self._matching(a, b)
        code = f"m.binary({name!r}, {a.dtype!r}, {a.code}, {b.code})"
        return reading.Value(f"m.dropped(lambda: {code})" if dropped else code, a.dtype)

    def _folded(self, name: str, a: reading.Value, b: reading.Value) -> bool:
        """Whether TVM's constructors give a number without an operand, as 0 of 0 * x."""
        # What is folded itself may be a number, too.
        first, second = (
            0 if v.code.startswith("m.dropped(") else _constant(v.code) for v in (a, b)
        )
        if name in ("floordiv", "truncdiv", "floormod", "truncmod"):
            return first == 0 or (second == 1 and name.endswith("mod"))
        return name == "mul" and (first == 0 or second == 0)

    def value(self, node: ast.expr) -> reading.Value:
        """An expression.

        Errors:
            UnreadableError: it is none that a kernel may have, or one the oracle does not know.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return reading.Value(repr(number), "bool" if isinstance(number, bool) else "")
            case ast.Name(id=name):
                variable = self.find(name)
                if variable.rank >= 0 or name in self.unbound:
                    raise reading.UnreadableError(f"{name} is not a value")
                return reading.Value(variable.code, variable.dtype)
            case ast.Subscript():
                buffer, places = self._access(node)
                return reading.Value(f"{buffer.code}.load({', '.join(places)})", buffer.dtype)
            case ast.BinOp(left=a, op=op, right=b):
                return self._binary(_SYMBOLS[type(op)], self.value(a), self.value(b))
            case ast.BoolOp(op=op, values=values):
                word = " and " if isinstance(op, ast.And) else " or "
                tests = list(map(self.truth, values))
                code = f"({word.join(tests)})"
                decided = any(_constant(t) == isinstance(op, ast.Or) for t in tests[1:])
                return reading.Value(f"m.dropped(lambda: {code})" if decided else code, "bool")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return reading.Value(f"(not {self.truth(operand)})", "bool")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                value = self.value(operand)
                return reading.Value(
                    f"m.unary('bitwise_not', {value.dtype!r}, {value.code})", value.dtype
                )
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand)
                if not value.dtype:
                    return reading.Value(f"(-{value.code})", "")
                return reading.Value(f"m.unary('neg', {value.dtype!r}, {value.code})", value.dtype)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                operands = list(map(self.value, [left, *comparators]))
                tests = []
                for op, a, b in zip(ops, operands, operands[1:], strict=False):
                    a, b = self._matching(a, b)
                    tests.append(
                        f"m.compare({_COMPARISONS[type(op)]!r}, {a.dtype!r}, {a.code}, {b.code})"
                    )
                return reading.Value(f"({' and '.join(tests)})", "bool")
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._choice(test, yes, no)
            case ast.Call():
                return self._call(node)
            case _:
                raise reading.UnreadableError(ast.unparse(node))

    def _choice(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> reading.Value:
        condition = self.truth(test)
        a, b = self._matching(self.value(yes), self.value(no))
        return reading.Value(f"({a.code} if {condition} else {b.code})", a.dtype)

    def _access(self, node: ast.Subscript) -> tuple[reading.Variable, list[str]]:
        if not isinstance(node.value, ast.Name):
            raise reading.UnreadableError(ast.unparse(node))
        buffer = self.find(node.value.id)
        places = [self.index(p) for p in reading.parts_of(node.slice)]
        if buffer.rank != len(places):
            raise reading.UnreadableError(f"{ast.unparse(node)} of a buffer of rank {buffer.rank}")
        return buffer, places

    def _call(self, node: ast.Call) -> reading.Value:
        name, args = reading.name_of(node.func), node.args
        match name, args:
            case _, [argument] if name in reading.DTYPES:
                return self._constant(name, argument)
            case "Cast", [ast.Constant(value=str(dtype)), value]:
                return self._cast(self.value(value), dtype)
            case "cast", [value, ast.Constant(value=str(dtype))]:
                return self._cast(self.value(value), dtype)
            case (("Select" | "if_then_else"), [test, yes, no]):
                return self._choice(test, yes, no)
            case "Let", [body]:
                return self._let(body, node.keywords)
            case "call_intrin", [dtype, ast.Constant(value="tir.call_extern"), *rest]:
                return self._call(ast.Call(ast.Name("call_extern"), [dtype, *rest], []))
            case "call_extern", [
                _,
                _,
                ast.Name(id=buffer) | ast.Call(args=[ast.Subscript(value=ast.Name(id=buffer))]),
            ]:
                return reading.Value(f"m.digest({self.find(buffer).code})", "int32")
            case "isnan", [value]:
                found = self.value(value)
                return reading.Value(f"m.isnan({found.dtype!r}, {found.code})", "bool")
            case "clz", [value]:
                found = self.value(value)
                return reading.Value(f"m.unary('clz', {found.dtype!r}, {found.code})", "int32")
            case _, [value] if name in _UNARY:
                found = self.typed(self.value(value))
                return reading.Value(
                    f"m.unary({name!r}, {found.dtype!r}, {found.code})", found.dtype
                )
            case _, [a, b] if name in _BINARY:
                x, y = self.value(a), self.value(b)
                if not x.dtype and not y.dtype:
                    x, y = self.as_type(x, "int32"), self.as_type(y, "int32")
                return self._binary(name, x, y)
            case _:
                raise reading.UnreadableError(ast.unparse(node))

    def _constant(self, dtype: str, argument: ast.expr) -> reading.Value:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return reading.Value(f"m.scalar('', {argument.value!r}, {dtype!r})", dtype)
        value = self.value(argument)
        if value.dtype:
            return self._cast(value, dtype)
        return self.as_type(value, dtype)

    def _cast(self, value: reading.Value, dtype: str) -> reading.Value:
        if dtype not in reading.DTYPES:
            raise reading.UnreadableError(dtype)
        return self.as_type(value if value.dtype else self.as_type(value, "int32"), dtype)

    def _let(self, body: ast.expr, keywords: list[ast.keyword]) -> reading.Value:
        [where] = [k.value for k in keywords if k.arg == "where"]
        assert isinstance(where, ast.Dict)
        [key], [bound] = where.keys, where.values
        assert isinstance(key, ast.Name)
        variable = self.find(key.id)
        value = self.as_type(self.value(bound), variable.dtype)
        self.scopes.append({})
        code = self.define(key.id, variable.dtype)
        unbound, self.unbound = self.unbound, self.unbound - {key.id}
        result = self.value(body)
        self.unbound = unbound
        self.scopes.pop()
        return reading.Value(f"(lambda {code}: {result.code})({value.code})", result.dtype)


def _constant(code: str) -> Any:
    """The value of what is made of literals alone, else None."""
    if reading.names_in(code) - {"m"}:
        return None
    try:
        with np.errstate(all="ignore"):
            return eval(code, {"m": Machine()})
    except (RefusedError, UndefinedError, AttributeError):
        return None
