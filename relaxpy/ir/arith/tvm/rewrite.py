"""The forms of TVM's rewriting simplifier: the first rule of a table that fits is applied.

An operation on integers of at least 32 bits is rewritten after its operands. Where no rule fits,
the canonical form takes its place if that is smaller. A rule is `pattern -> result`, with `=>` if
the result is rewritten again, and with conditions after `if`. Names that begin with c are literals
and `n` is anything else; `/` and `mod` are the division toward zero and its remainder, and `div`
and `rem` stand for either kind of division. A rule that begins with `*` also holds with the
operands of each commutative operator exchanged, and one with min or max that does not begin with
`!` with these exchanged.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import product
from typing import TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.traverse import tree_size, walk
from relaxpy.ir.tir import expr as tir, ops

_SUMS = """
(x - y) + y -> x
x + (y - x) -> y
(x - y) + (y - z) -> x - z
(x - y) + (z - x) -> z - y
min(x, y - z) + z => min(x + z, y)
z + min(x, y - z) => min(x + z, y)
min(c1 - z, x) + z => min(x + z, c1)
z + min(c1 - z, x) => min(x + z, c1)
min(x - z, y) + z => min(x, y + z)
z + min(x - z, y) => min(x, y + z)
* max(x, y) + min(x, y) -> x + y
min(x, y + c1) + c2 => min(x + c2, y) if c1 == -c2
min(x + c1, y) + c2 => min(x, y + c2) if c1 == -c2
x * c1 + x * c2 -> x * (c1 + c2)
* n * y + n * z => (y + z) * n
* n * y + n => (y + 1) * n
n + n -> n * 2
* x / c1 * c1 + mod(x, c1) -> x
* x // c1 * c1 + x % c1 -> x
* (x % c2 + c1) // c2 + x // c2 => (x + c1) // c2 if c2 > 0
* x // 2 + x % 2 -> (x + 1) // 2
* x % 2 + (x + c1) % 2 -> 1 if c1 % 2 == 1
(c1 - x) + c2 => (c1 + c2) - x
c1 + x => x + c1
x + (c1 - y) => (x - y) + c1
(c1 - y) + x => (x - y) + c1
(x + c1) + c2 => x + (c1 + c2)
(x + c1) + y => (x + y) + c1
x + (y + c1) => (x + y) + c1
"""
_DIFFERENCES = """
x - x -> 0
(x + y) - y -> x
(x + y) - x -> y
x - (y + x) -> 0 - y
x - (x + y) -> 0 - y
min(x, y) - x -> min(0, y - x)
min(x, y) - y -> min(x - y, 0)
x - max(x, y) -> min(0, x - y)
y - max(x, y) -> min(y - x, 0)
x * c1 - x * c2 -> x * (c1 - c2)
* n * y - n => (y + -1) * n
* n - n * y => (1 - y) * n
* n * y - n * z => (y - z) * n
c1 - (x + c2) => (c1 - c2) - x
c1 - (c2 - x) => x + (c1 - c2)
x - c1 => x + (0 - c1) if c1 != 0
(x + c1) - (y + c2) => (x - y) + (c1 - c2)
* (x + y) - (x + z) -> y - z
(x + c1) - y => (x - y) + c1
x - (y + c1) => (x - y) + (0 - c1)
x - (y - z) => (x + z) - y
x - y * c1 => x + y * (0 - c1) if c1 < 0
(c1 - x) - (c2 - y) => (y - x) + (c1 - c2)
min(x + y, z) - x -> min(y, z - x)
min(y + x, z) - x -> min(y, z - x)
min(z, x + y) - x -> min(z - x, y)
min(z, y + x) - x -> min(z - x, y)
x - min(x + y, z) -> max(0 - y, x - z)
x - min(y + x, z) -> max(0 - y, x - z)
x - min(z, x + y) -> max(x - z, 0 - y)
x - min(z, y + x) -> max(x - z, 0 - y)
min(x, y) - min(y, x) -> 0
min(x + c1, y + c2) - min(x + c3, y + c4) -> c1 - c3 if c1 - c3 == c2 - c4
min(x, y) - min(x + c1, y + c1) -> 0 - c1
min(x + c1, y + c2) - min(x, y + c3) -> c1 if c1 == c2 - c3
min(x, y + c3) - min(x + c1, y + c2) -> 0 - c1 if c1 == c2 - c3
"""
_QUOTIENT_DIFFERENCES = """
x - div(x, c1) * c1 => rem(x, c1)
div(x, c1) * c1 - x => 0 - rem(x, c1)
x - div(x + y, c1) * c1 => rem(x + y, c1) - y
div(x + y, c1) * c1 - x => y - rem(x + y, c1)
x - div(x - y, c1) * c1 => rem(x - y, c1) + y
div(x - y, c1) * c1 - x => 0 - rem(x - y, c1) - y
x * c2 - div(x, c1) * c3 => rem(x, c1) * c2 if c3 == c1 * c2
div(x, c1) * c3 - x * c2 => rem(x, c1) * (0 - c2) if c3 == c1 * c2
x * c2 - div(x + y, c1) * c3 => (rem(x + y, c1) - y) * c2 if c3 == c1 * c2
div(x + y, c1) * c3 - x * c2 => (y - rem(x + y, c1)) * c2 if c3 == c1 * c2
x * c2 - div(x - y, c1) * c3 => (rem(x - y, c1) + y) * c2 if c3 == c1 * c2
div(x - y, c1) * c3 - x * c2 => (0 - rem(x - y, c1) - y) * c2 if c3 == c1 * c2
"""
_FLOOR_DIFFERENCES = """
(x + c1) // 2 - x // 2 => x % 2 + (c1 // 2) if c1 % 2 == 1
x // 2 - (x + c1) // 2 => x % 2 * -1 + (0 - c1 // 2) if c1 % 2 == 1
(x + c1) // 2 - (x + c2) // 2 => x % 2 + (c1 // 2 - c2 // 2) if c1 % 2 == 1 and c2 % 2 == 0
(x + c1) // 2 - (x + c2) // 2 => c1 // 2 - c2 // 2 if c1 % 2 == c2 % 2
(x + 1) // 2 - x % 2 => x // 2
(x + c1) // c3 - (x + c2) // c3 => ((x + c2 % c3) % c3 + (c1 - c2)) // c3 if c3 > 0
(x + c1) // c3 - x // c3 => (x % c3 + c1) // c3 if c3 > 0
(x + c1) / c3 - (x + c2) / c3 => (mod(x + c2 % c3, c3) + (c1 - c2)) / c3
    if c3 > 0 and c1 >= c2 and x >= 0 - c2
(x + c1) / c3 - x / c3 => (mod(x, c3) + c1) / c3 if c3 > 0 and c1 >= 0 and x >= 0
"""
_PRODUCTS = """
c1 * x => x * c1
(x + c1) * c2 => x * c2 + c1 * c2
(x * c1) * c2 -> x * (c1 * c2)
* min(x, y) * max(x, y) -> x * y
(x - y) * c1 => (y - x) * (0 - c1) if c1 < 0
"""
_TRUNCATED = """
x / x -> 1
(x / c1) / c2 -> x / (c1 * c2) if c1 > 0 and c2 > 0
(x / c1 + c2) / c3 -> (x + c1 * c2) / (c1 * c3) if c1 > 0 and c2 >= 0 and c3 > 0 and x >= 0
x * c1 / c2 -> x * (c1 // c2) if c2 > 0 and c1 % c2 == 0
x * c1 / c2 -> x / (c2 // c1) if c1 > 0 and c2 % c1 == 0
(x * c1 + y) / c2 -> x * (c1 // c2) + y / c2 if c2 > 0 and c1 % c2 == 0 and x * c1 >= 0 and y >= 0
(y + x * c1) / c2 -> y / c2 + x * (c1 // c2) if c2 > 0 and c1 % c2 == 0 and x * c1 >= 0 and y >= 0
min(x * c1, y) / c2 -> min(x * (c1 // c2), y / c2)
    if c2 > 0 and c1 % c2 == 0 and x * c1 >= 0 and y >= 0
min(y, x * c1) / c2 -> min(y / c2, x * (c1 // c2))
    if c2 > 0 and c1 % c2 == 0 and x * c1 >= 0 and y >= 0
* (x * c1 + y + z) / c2 -> x * (c1 // c2) + (y + z) / c2
    if c2 > 0 and c1 % c2 == 0 and x * c1 >= 0 and y + z >= 0
(x + c1) / c2 -> x / c2 + c1 // c2 if c2 > 0 and c1 > 0 and c1 % c2 == 0 and x >= 0
* (x + y) / x -> y / x + 1 if x >= 0 and y >= 0
(x + y + z) / x -> (y + z) / x + 1 if x >= 0 and y + z >= 0
(y + x + z) / x -> (y + z) / x + 1 if x >= 0 and y + z >= 0
(y + (x + z)) / x -> (y + z) / x + 1 if x >= 0 and y + z >= 0
(y + (z + x)) / x -> (y + z) / x + 1 if x >= 0 and y + z >= 0
* (x * y) / y -> x
(x * z + y) / z -> x + y / z if x * z >= 0 and y >= 0 and z >= 0
(z * x + y) / z -> x + y / z if x * z >= 0 and y >= 0 and z >= 0
(y + x * z) / z -> y / z + x if x * z >= 0 and y >= 0 and z >= 0
(y + z * x) / z -> y / z + x if x * z >= 0 and y >= 0 and z >= 0
"""
_REMAINDERS = """
mod(x * c1, c2) -> 0 if c1 % c2 == 0
mod(x, c1) => mod(x, 0 - c1) if c1 < 0
mod(x * c1 + y, c2) -> mod(y, c2) if c1 % c2 == 0 and x * c1 >= 0 and y >= 0
mod(x + y * c1, c2) -> mod(x, c2) if c1 % c2 == 0 and y * c1 >= 0 and x >= 0
mod(x + c1, c2) -> mod(x, c2) if c1 > 0 and c1 % c2 == 0 and x >= 0
"""
_FLOORS = """
(x // c1) // c2 -> x // (c1 * c2) if c1 > 0 and c2 > 0
(x // c1 + c2) // c3 -> (x + c1 * c2) // (c1 * c3) if c1 > 0 and c3 > 0
x * c1 // c2 -> x * (c1 // c2) if c2 > 0 and c1 % c2 == 0
x * c1 // c2 -> x // (c2 // c1) if c1 > 0 and c2 % c1 == 0
* (x * c1 + y) // c2 => x * (c1 // c2) + y // c2 if c2 > 0 and c1 % c2 == 0
min(x * c1, y) // c2 -> min(x * (c1 // c2), y // c2) if c2 > 0 and c1 % c2 == 0
min(y, x * c1) // c2 -> min(y // c2, x * (c1 // c2)) if c2 > 0 and c1 % c2 == 0
* (x * c1 + y + z) // c2 -> x * (c1 // c2) + (y + z) // c2 if c2 > 0 and c1 % c2 == 0
(x + c1) // c2 -> x // c2 + c1 // c2 if c2 > 0 and c1 % c2 == 0
* (x * y) // y -> x if y >= 0
* (x + y) // x -> y // x + 1 if x >= 0
(x + y + z) // x -> (y + z) // x + 1 if x >= 0
(y + x + z) // x -> (y + z) // x + 1 if x >= 0
(y + (x + z)) // x -> (y + z) // x + 1 if x >= 0
(y + (z + x)) // x -> (y + z) // x + 1 if x >= 0
(x * z + y) // z -> x + y // z if z >= 0
(z * x + y) // z -> x + y // z if z >= 0
(y + x * z) // z -> y // z + x if z >= 0
(y + z * x) // z -> y // z + x if z >= 0
"""
_FLOOR_REMAINDERS = """
x * c1 % c2 -> 0 if c1 % c2 == 0
x * c1 % c2 -> x * (c1 % c2) % c2 if c2 > 0 and (c1 >= c2 or c1 < 0)
* (x * c1 + y) % c2 => y % c2 if c2 > 0 and c1 % c2 == 0
(x * c1 + y) % c2 => (x * (c1 % c2) + y) % c2 if c2 > 0 and (c1 >= c2 or c1 < 0)
(y + x * c1) % c2 => (y + x * (c1 % c2)) % c2 if c2 > 0 and (c1 >= c2 or c1 < 0)
(x * c1 + y) % c2 -> x % (c2 // c1) * c1 + y
    if c1 > 0 and c2 % c1 == 0 and y >= 0 and 0 - y >= 1 - c1
(x + c1) % c2 => (x + c1 % c2) % c2 if c2 > 0 and (c1 >= c2 or c1 < 0)
"""
_EXTREMA = """
! min(x + c1, x + c2) -> x + c1 if c1 <= c2
! min(x + c1, x + c2) -> x + c2 if c1 >= c2
! max(x + c1, x + c2) -> x + c1 if c1 >= c2
! max(x + c1, x + c2) -> x + c2 if c1 <= c2
min(min(x, y), x) -> min(x, y)
min(min(x, y), y) -> min(x, y)
min(x, min(x, y)) -> min(x, y)
min(y, min(x, y)) -> min(x, y)
min(min(min(x, y), z), y) -> min(min(x, y), z)
min(min(min(min(x, y), z), w), y) -> min(min(min(x, y), z), w)
min(min(min(min(min(x, y), z), w), v), y) -> min(min(min(min(x, y), z), w), v)
* min(max(x, y), min(x, y)) -> min(x, y)
* min(max(x, y), x) -> x
* min(max(x, y), max(x, z)) -> max(min(y, z), x)
* min(y + x, z + x) -> min(y, z) + x
min(x - y, x - z) -> x - max(y, z)
min(y - x, z - x) -> min(y, z) - x
min(min(x, c1), c2) -> min(x, min(c1, c2))
min(c1 - x, c2) -> c1 - max(x, c1 - c2) if c1 != c2
min(x * c1, c2) -> min(x, c2 // c1) * c1 if c1 > 0 and c2 % c1 == 0
min(x * c1, c2) -> max(x, c2 // c1) * c1 if c1 < 0 and c2 % c1 == 0
min(x / c1, y / c1) -> min(x, y) / c1 if c1 > 0
min(x / c1, y / c1) -> max(x, y) / c1 if c1 < 0
min(x // c1, y // c1) -> min(x, y) // c1 if c1 > 0
min(x // c1, y // c1) -> max(x, y) // c1 if c1 < 0
"""

_KINDS: Mapping[type[ast.operator], type[tir.BinaryOpExpr]] = {
    ast.Add: tir.Add,
    ast.Sub: tir.Sub,
    ast.Mult: tir.Mul,
    ast.Div: tir.Div,
    ast.FloorDiv: tir.FloorDiv,
    ast.Mod: tir.FloorMod,
}
_CALLS: Mapping[str, type[tir.BinaryOpExpr]] = {"min": tir.Min, "max": tir.Max, "mod": tir.Mod}
_SWAPPED = {"min": tir.Max, "max": tir.Min}
_TRUNCATING = {"div": tir.Div, "rem": tir.Mod}
_FLOORING = {"div": tir.FloorDiv, "rem": tir.FloorMod}
_COMMUTATIVE = (tir.Add, tir.Mul, tir.Min, tir.Max)
_BUILDERS: Mapping[type[tir.PrimExpr], Callable[..., tir.PrimExpr]] = {
    tir.Add: ops.add,
    tir.Sub: ops.sub,
    tir.Mul: ops.mul,
    tir.Div: ops.truncdiv,
    tir.Mod: ops.truncmod,
    tir.FloorDiv: ops.floordiv,
    tir.FloorMod: ops.floormod,
    tir.Min: ops.minimum,
    tir.Max: ops.maximum,
}
_FOLDED: Mapping[type[tir.PrimExpr], Callable[[int, int], int]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
    tir.FloorDiv: operator.floordiv,
    tir.FloorMod: operator.mod,
    tir.Div: ops.trunc_div,
    tir.Mod: lambda a, b: a - b * ops.trunc_div(a, b),
    tir.Min: min,
    tir.Max: max,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MAX_STEPS = 100
_MAX_DEPTH = 60

Match: TypeAlias = dict[str, tir.PrimExpr]
Simplify: TypeAlias = Callable[[tir.PrimExpr], tir.PrimExpr]
AtLeast: TypeAlias = Callable[[tir.PrimExpr, int], bool]


@dataclass(frozen=True, slots=True)
class _Operation:
    """A pattern or result that is an operation; its operands are names, integers and operations."""

    kind: type[tir.BinaryOpExpr]
    a: _Pattern
    b: _Pattern


_Pattern: TypeAlias = _Operation | str | int


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: _Operation
    result: _Pattern
    condition: ast.expr | None
    again: bool


def _read(node: ast.expr, calls: Mapping[str, type[tir.BinaryOpExpr]]) -> _Pattern:
    """The pattern of an expression; `calls` has the operation for each name that is called."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(operand=ast.Constant(value=int() as value)):
            return -value
        case ast.BinOp(left=a, op=op, right=b):
            kind = _KINDS[type(op)]
        case ast.Call(func=ast.Name(id=name), args=[a, b]):
            kind = calls[name]
        case _:
            raise AssertionError(ast.dump(node))
    return _Operation(kind, _read(a, calls), _read(b, calls))


def _commuted(pattern: _Pattern) -> Iterator[_Pattern]:
    """The pattern with the operands of its commutative operators in every order.

    The variants with the outermost operands in their order come first, so that a result keeps it.
    """
    if not isinstance(pattern, _Operation):
        yield pattern
        return
    operands = list(product(_commuted(pattern.a), _commuted(pattern.b)))
    yield from (_Operation(pattern.kind, a, b) for a, b in operands)
    if pattern.kind in _COMMUTATIVE:
        yield from (_Operation(pattern.kind, b, a) for a, b in operands)


def _rules_in(text: str) -> Iterator[_Rule]:
    for line in text.strip().replace("\n    if", " if").splitlines():
        rule, _, condition = line.partition(" if ")
        again = "=>" in rule
        sides = [side.strip() for side in rule.split("=>" if again else "->")]
        test = ast.parse(condition, mode="eval").body if condition else None
        pattern, result = (ast.parse(side.lstrip("*! "), mode="eval").body for side in sides)
        tables: list[Mapping[str, type[tir.BinaryOpExpr]]] = [_CALLS]
        if ("min(" in rule or "max(" in rule) and not rule.startswith("!"):
            tables.append({**_CALLS, **_SWAPPED})
        if "div(" in rule:
            tables = [_TRUNCATING, _FLOORING]
        for calls in tables:
            left, right = _read(pattern, calls), _read(result, calls)
            commutes = sides[0].startswith("* ")
            for variant in dict.fromkeys(_commuted(left)) if commutes else (left,):
                assert isinstance(variant, _Operation)
                yield _Rule(variant, right, test, again)


@cache
def _rules() -> Mapping[type[tir.PrimExpr], tuple[_Rule, ...]]:
    """The rules for each kind of operation."""
    table: dict[type[tir.PrimExpr], tuple[_Rule, ...]] = {}
    for text in (
        *(_SUMS, _QUOTIENT_DIFFERENCES, _FLOOR_DIFFERENCES, _DIFFERENCES, _PRODUCTS, _TRUNCATED),
        *(_REMAINDERS, _FLOORS, _FLOOR_REMAINDERS, _EXTREMA),
    ):
        for rule in _rules_in(text):
            table[rule.pattern.kind] = (*table.get(rule.pattern.kind, ()), rule)
    return table


def is_rewritten(expr: tir.PrimExpr) -> bool:
    """Whether there are rules for `expr`: an operation on signed integers of at least 32 bits."""
    return (
        type(expr) in _BUILDERS
        and expr.dtype.family == "int"
        and expr.dtype.lanes == 1
        and expr.dtype.bits >= 32
    )


def rewritten(expr: tir.PrimExpr, simplify: Simplify, at_least: AtLeast) -> tir.PrimExpr:
    """`expr` after the rules; `simplify` and `at_least` are the canonical form and its proofs."""
    if _depth(expr) > _MAX_DEPTH:
        return simplify(expr)
    return _Rewriter(simplify, at_least).visit(expr)


class _Rewriter:
    """One run over an expression."""

    def __init__(self, simplify: Simplify, at_least: AtLeast) -> None:
        self._simplify = simplify
        self._at_least = at_least
        self._done: dict[tir.PrimExpr, tir.PrimExpr] = {}
        self._steps = 0

    def visit(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """The form of `expr` under the rules."""
        result = self._done.get(expr)
        if result is None:
            result = self._done[expr] = self._rewritten(expr)
        return result

    def _rewritten(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        if not is_rewritten(expr):
            return self._with_operands(self._simplify(expr))
        assert isinstance(expr, tir.BinaryOpExpr)
        a, b = self.visit(expr.a), self.visit(expr.b)
        if isinstance(b, tir.IntImm) and (isinstance(a, tir.IntImm) or b.value == 0):
            return self._simplify(expr)
        node = _BUILDERS[type(expr)](a, b)
        if not isinstance(node, tir.BinaryOpExpr):
            return node
        for rule in _rules().get(type(node), ()):
            match: Match = {}
            if not _matches(rule.pattern, node, match):
                continue
            with suppress(_UnrepresentableError):
                if not self._holds(rule.condition, match):
                    continue
                result = _built(rule.result, match, node)
                self._steps += 1
                return self.visit(result) if rule.again and self._steps < _MAX_STEPS else result
        canonical = self._simplify(node)
        return self.visit(canonical) if tree_size(canonical) < tree_size(node) else node

    def _with_operands(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """A comparison with its operands rewritten."""
        if not isinstance(expr, tir.CmpExpr) or not is_rewritten(expr.a):
            return expr
        return ops.compare(type(expr), self.visit(expr.a), expr.b)

    def _holds(self, condition: ast.expr | None, match: Match) -> bool:
        match condition:
            case None:
                return True
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self._holds(value, match) for value in values)
            case ast.BoolOp(values=values):
                return any(self._holds(value, match) for value in values)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                low, high = _literal(left, match), _literal(right, match)
                if low is not None and high is not None:
                    return _COMPARISONS[type(op)](low, high)
                value = _built(_read(left, _CALLS), match, next(iter(match.values())))
                assert high is not None
                return self._at_least(value, high)
            case _:
                raise AssertionError(ast.dump(condition))


def _matches(pattern: _Pattern, expr: tir.PrimExpr, match: Match) -> bool:
    """Whether `expr` has this form; the names are entered in `match`."""
    if isinstance(pattern, int):
        return isinstance(expr, tir.IntImm) and expr.value == pattern
    if isinstance(pattern, str):
        if pattern[0] in "cn" and isinstance(expr, tir.IntImm) != (pattern[0] == "c"):
            return False
        return match.setdefault(pattern, expr) is expr
    if type(expr) is not pattern.kind:
        return False
    assert isinstance(expr, tir.BinaryOpExpr)
    return _matches(pattern.a, expr.a, match) and _matches(pattern.b, expr.b, match)


class _UnrepresentableError(Exception):
    """A literal of a result does not fit its datatype."""


def _built(result: _Pattern, match: Match, like: tir.PrimExpr) -> tir.PrimExpr:
    if isinstance(result, int):
        return ops.const(result, like.dtype)
    if isinstance(result, str):
        return match[result]
    a, b = _built(result.a, match, like), _built(result.b, match, like)
    if not isinstance(a, tir.IntImm) or not isinstance(b, tir.IntImm):
        return _BUILDERS[result.kind](a, b)
    value = _FOLDED[result.kind](a.value, b.value)
    if not -1 << like.dtype.bits - 1 <= value < 1 << like.dtype.bits - 1:
        raise _UnrepresentableError
    return ops.const(value, like.dtype)


def _literal(node: ast.expr, match: Match) -> int | None:
    """The value of an expression of literals; None if it has other operands."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            found = match[name]
            return found.value if isinstance(found, tir.IntImm) else None
        case ast.UnaryOp(operand=operand):
            inner = _literal(operand, match)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _literal(left, match), _literal(right, match)
            if a is None or b is None or (b == 0 and isinstance(op, (ast.Mod, ast.FloorDiv))):
                return None
            return _FOLDED[_KINDS[type(op)]](a, b)
        case _:
            raise AssertionError(ast.dump(node))


def _depth(expr: tir.PrimExpr) -> int:
    depths: dict[tir.PrimExpr, int] = {}
    for node in walk(expr):
        if isinstance(node, tir.BinaryOpExpr):
            depths[node] = 1 + max(depths.get(node.a, 0), depths.get(node.b, 0))
    return depths.get(expr, 0)
