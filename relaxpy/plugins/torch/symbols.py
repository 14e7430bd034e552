"""Sizes of PyTorch, which are expressions of sympy, as expressions of TIR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import sympy
import torch

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import expr as tir, intrin
from relaxpy.ir.tir.ops import const, maximum, minimum
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Names, identifier, number
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass

Size: TypeAlias = PrimExpr | int
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic(value: object) -> bool:
    """True if a value is a number that depends on sizes."""
    return isinstance(value, _SYMBOLIC)


def sympy_of(value: Any) -> Any:
    """The expression of sympy that a number is; a number of Python stays."""
    return value.node.expr if is_symbolic(value) else value


def _name_of(size: Any) -> str | None:
    """The name that the user gave a size by `torch.export.Dim`, where it is alone."""
    environment = getattr(getattr(size, "node", None), "shape_env", None)
    sources = getattr(environment, "var_to_sources", {}).get(sympy_of(size), ())
    named = getattr(environment, "source_name_to_debug_name", {})
    for source in sources:
        place = source.name() if callable(source.name) else source.name
        name = named.get(place, "")
        if name.isidentifier() and not name.startswith("_"):
            return str(name)
    return None


def _fold(operation: Callable[[Any, Any], Any], items: Sequence[Any]) -> Any:
    result = items[0]
    for item in items[1:]:
        result = operation(result, item)
    return result


def _floor_div(a: Any, b: Any) -> Any:
    return a // b


#: Functions of sympy and of PyTorch, by the names of their classes.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *items: _fold(lambda a, b: a + b, items),
    "Mul": lambda *items: _fold(lambda a, b: a * b, items),
    "Max": lambda *items: _fold(maximum, items),
    "Min": lambda *items: _fold(minimum, items),
    "And": lambda *items: _fold(tir.And, items),
    "Or": lambda *items: _fold(tir.Or, items),
    "Not": tir.Not,
    "FloorDiv": _floor_div,
    "CleanDiv": _floor_div,
    "IntTrueDiv": lambda a, b: tir.Div(tir.Cast("float64", a), tir.Cast("float64", b)),
    "FloatTrueDiv": tir.Div,
    "CeilDiv": lambda a, b: (a + b - 1) // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Where": intrin.if_then_else,
    "Equality": tir.EQ,
    "Unequality": tir.NE,
    "LessThan": tir.LE,
    "StrictLessThan": tir.LT,
    "GreaterThan": tir.GE,
    "StrictGreaterThan": tir.GT,
    "ToFloat": lambda a: tir.Cast("float64", a),
    "TruncToInt": lambda a: tir.Cast("int64", a),
    "FloorToInt": lambda a: tir.Cast("int64", intrin.floor(a)),
    "CeilToInt": lambda a: tir.Cast("int64", intrin.ceil(a)),
    "RoundToInt": lambda a: tir.Cast("int64", intrin.nearbyint(a)),
    "TruncToFloat": intrin.trunc,
    "FloatPow": intrin.pow,
    **{
        f"OpaqueUnaryFn_{name}": getattr(intrin, name)
        for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "tanh", "asin", "acos")
    },
    "LShift": lambda a, b: tir.Mul(a, tir.Cast("int64", 1 << b)),
    "RShift": lambda a, b: a >> b,
    "BitwiseFn_bitwise_and": intrin.bitwise_and,
    "BitwiseFn_bitwise_or": intrin.bitwise_or,
    "BitwiseFn_bitwise_xor": intrin.bitwise_xor,
    "Abs": intrin.abs,
    "Identity": lambda a: a,
}


@dataclass(eq=False)
class Symbols:
    """The variables that the symbols of a program are, which become known input by input."""

    known: dict[Any, PrimExpr] = field(default_factory=dict)
    analyzer: Analyzer = field(default_factory=Analyzer)
    #: Symbols that are known by a multiple of them, as expressions of symbols of the multiples.
    _shares: dict[Any, Any] = field(default_factory=dict)
    _names: Names = field(default_factory=lambda: Names(lambda name: identifier(name, "n")))

    def new(self, name: str) -> tir.Var:
        """A new variable for a size."""
        return tir.Var(self._names.new(name), "int64")

    def define(self, shapes: Sequence[Sequence[Any]], names: Mapping[tuple[int, int], str]) -> None:
        """Make variables of the symbols in the shapes of inputs, which define them.

        A symbol that stands alone somewhere is a variable of the name that `names` has for this
        input and axis, or that the user gave it, or of its own. One that occurs only as
        `a * s + b` is solved from the size, a variable.
        """
        exprs = {
            (k, axis): sympy_of(size)
            for k, shape in enumerate(shapes)
            for axis, size in enumerate(shape)
        }
        for place, expr in exprs.items():
            if isinstance(expr, sympy.Symbol) and expr not in self.known:
                k, axis = place
                given = names.get(place) or _name_of(shapes[k][axis])
                self.known[expr] = self.new(given or str(expr))
        for expr in exprs.values():
            unknown = self.unknown(expr)
            if len(unknown) == 1 and expr.is_polynomial(*unknown):
                (symbol,) = unknown
                slope = expr.coeff(symbol, 1)
                offset = sympy.expand(expr - slope * symbol)
                if slope.is_Integer and slope > 0 and not offset.has(symbol):
                    size = self.new(f"n_{symbol}")
                    self.known[symbol] = (size - self.expr(offset)) // int(slope)
                    multiple = sympy.Symbol(size.name, integer=True)
                    self.known[multiple] = size
                    self._shares[symbol] = (multiple - offset) / slope

    def equal(self, a: Any, b: Any) -> bool:
        """True if two sizes are known to be the same."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return a is b or self.analyzer.can_prove_equal(a, b)

    def unknown(self, value: Any) -> list[Any]:
        """The symbols of a number that have no variable yet."""
        symbols = getattr(sympy_of(value), "free_symbols", ())
        return sorted((s for s in symbols if s not in self.known), key=str)

    def expr(self, value: Any) -> Any:
        """A number of Python, of sympy or of PyTorch: itself, or an expression of int64.

        Errors:
            UnsupportedError: it has a symbol that nothing defines, or a function without a form.
        """
        found = self._expr(sympy_of(value))
        return number(found, self.analyzer) if isinstance(found, PrimExpr) else found

    def _expr(self, expr: Any) -> Any:
        if isinstance(expr, (bool, int, float)):
            return expr
        if expr.is_Integer:
            return int(expr)
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        if expr.is_Float or expr.is_Rational:
            return float(expr)
        if isinstance(expr, sympy.Expr) and not self._shares.keys().isdisjoint(expr.free_symbols):
            multiples = sympy.expand(expr.xreplace(self._shares))
            if multiples.is_polynomial() and all(
                c.is_Integer for c in sympy.Poly(multiples).coeffs()
            ):
                return self._expr(multiples)
        if expr.is_Symbol:
            if expr not in self.known:
                raise UnsupportedError(f"the size {expr} is not known from the inputs")
            return self.known[expr]
        name = type(expr).__name__
        if name in ("Pow", "PowByNatural") and expr.args[1].is_Integer and expr.args[1] > 0:
            return _fold(lambda a, b: a * b, [self._expr(expr.args[0])] * int(expr.args[1]))
        if name == "Piecewise" and expr.args[-1].cond == sympy.true:
            *cases, last = expr.args
            result = self._operand(last.expr)
            for case in reversed(cases):
                result = intrin.if_then_else(
                    self._expr(case.cond), self._operand(case.expr), result
                )
            return result
        if name not in _FUNCTIONS:
            raise UnsupportedError(f"the size {expr} has no form in TIR")
        return _FUNCTIONS[name](*self._operands(expr))

    def _operand(self, expr: Any) -> Any:
        value = self._expr(expr)
        if isinstance(value, PrimExpr):
            return value
        return const(value, "float64" if isinstance(value, float) else "int64")

    def _operands(self, expr: Any) -> list[Any]:
        items = [self._expr(item) for item in expr.args]
        if all(not isinstance(item, PrimExpr) for item in items):
            items[0] = const(items[0], "float64" if isinstance(items[0], float) else "int64")
        return items
