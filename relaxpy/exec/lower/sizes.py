"""PrimExprs over shape variables as Python expressions over plain integers."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping

from relaxpy.errors import CompileError
from relaxpy.exec import python_ast as py
from relaxpy.exec.kernel.emit.scope import COMPARISONS
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.values import Value, prim_value
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass

_SIGNS: dict[type[tir.PrimExpr], type[ast.operator]] = {
    tir.Add: ast.Add,
    tir.Sub: ast.Sub,
    tir.Mul: ast.Mult,
    tir.FloorDiv: ast.FloorDiv,
    tir.FloorMod: ast.Mod,
}
_DIVISIONS: dict[type[tir.PrimExpr], str] = {
    tir.FloorDiv: "rx.floordiv",
    tir.FloorMod: "rx.floormod",
    tir.Div: "rx.truncdiv",
    tir.Mod: "rx.truncmod",
}


@dataclass(frozen=True, slots=True)
class CompiledScalar:
    """A PrimExpr without Python syntax, which is evaluated for values of its variables."""

    expr: tir.PrimExpr
    variables: tuple[tir.Var, ...]

    def __call__(self, *values: Value) -> Value:
        """The value. Errors: RuntimeCheckError for a division by zero or an overflow."""
        bound = dict(zip(self.variables, values, strict=True))
        return prim_value(ScalarEvaluator(bound, checked).value(self.expr), self.expr.dtype)


class SizeLowering:
    """Writes PrimExprs; `names` has the bound variables, and `share` names an object."""

    def __init__(
        self, names: Mapping[tir.Var, str], share: Callable[[str, object], ast.expr]
    ) -> None:
        self._names = names
        self._share = share

    def write(self, expr: tir.PrimExpr) -> ast.expr:
        """`expr` as Python code for an int, or for a prim value of another datatype."""
        match expr:
            case tir.Var():
                if expr not in self._names:
                    raise CompileError(f"shape variable {expr.name} is not bound", rule="PX-7")
                return py.path(self._names[expr])
            case tir.IntImm(dtype=dtype, value=value) if _is_plain(dtype):
                return py.code(bool(value) if dtype.is_bool else value)
            case tir.FloatImm(dtype=dtype, value=real) if dtype == "float64" and math.isfinite(
                real
            ):
                return py.code(real)
            case tir.Cast(dtype=dtype, value=inner) if dtype == "int64" and _widens(inner.dtype):
                return self.write(inner)
            case tir.CmpExpr(a=a, b=b) if _is_plain(a.dtype):
                return py.compare(self.write(a), COMPARISONS[type(expr)], self.write(b))
            case tir.Or(a=a, b=b):
                return ast.BoolOp(ast.Or(), [self.write(a), self.write(b)])
            case tir.And(a=a, b=b):
                return ast.BoolOp(ast.And(), [self.write(a), self.write(b)])
            case tir.Not(a=a):
                return py.negated(self.write(a))
            case (
                tir.Select(condition=test, true_value=yes, false_value=no)
                | tir.Call(op=Op(name="tir.if_then_else"), args=(test, yes, no))
            ) if _is_plain(expr.dtype):
                return ast.IfExp(self.write(test), self.write(yes), self.write(no))
            case tir.BinaryOpExpr(a=a, b=b) if expr.dtype == "int64":
                return self._arithmetic(type(expr), a, b)
            case _:
                return self._evaluated(expr)

    def prim_value(self, expr: tir.PrimExpr) -> ast.expr:
        """`expr` as Python code for a prim value of its datatype."""
        plain = _is_plain(expr.dtype) or isinstance(expr, tir.FloatImm)
        return self.write(expr) if plain else self._evaluated(expr)

    def _arithmetic(self, kind: type[tir.PrimExpr], a: tir.PrimExpr, b: tir.PrimExpr) -> ast.expr:
        left, right = self.write(a), self.write(b)
        if kind in (tir.Min, tir.Max):
            return py.call("min" if kind is tir.Min else "max", left, right)
        if kind not in _DIVISIONS:
            return py.call("rx.size", py.binary(left, _SIGNS[kind], right))
        if kind in _SIGNS and isinstance(b, tir.IntImm) and b.value > 0:
            return py.binary(left, _SIGNS[kind], right)
        return py.call(_DIVISIONS[kind], left, right)

    def _evaluated(self, expr: tir.PrimExpr) -> ast.expr:
        """A literal as a shared object, or a call of the evaluator."""
        variables = variables_of(expr)
        compiled = CompiledScalar(expr, variables)
        if isinstance(expr, tir.ConstExpr):
            return self._share("number", compiled())
        return py.call(self._share("scalar", compiled), *map(self.write, variables))


def _is_plain(dtype: DataType) -> bool:
    """Return whether all values of `dtype` are Python integers or bools."""
    return dtype == "int64" or dtype.is_bool


def _widens(dtype: DataType) -> bool:
    return dtype.is_int and not dtype.is_bool and dtype.bits <= 32
