"""Checks against struct info as inline Python conditions that only matching values satisfy.

They are sufficient, not necessary: an instance of a subclass fails them, for example. If they fail,
the full check decides.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce

from relaxpy.errors import CompileError
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.emit.scope import COMPARISONS
from relaxpy.exec.runtime.conditions import Component, components
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.values import Category, Value, prim_value
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
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
        if kind is tir.Add:
            terms = _terms(a, b)
            if len(terms) > _MOST_NESTED:
                return py.call("rx.sum_of_sizes", *map(self.write, terms))
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


_MOST_NESTED = 16
"""The number of terms of the longest sum with nested calls, whose depth Python limits."""


def _terms(a: tir.PrimExpr, b: tir.PrimExpr) -> list[tir.PrimExpr]:
    """The terms of a + b in order, where `a` is a sum in turn."""
    terms = [b]
    while isinstance(a, tir.Add) and a.dtype == "int64":
        terms.append(a.b)
        a = a.a
    return [a, *reversed(terms)]


def _is_plain(dtype: DataType) -> bool:
    """True if all values of `dtype` are Python integers or bools."""
    return dtype == "int64" or dtype.is_bool


def _widens(dtype: DataType) -> bool:
    return dtype.is_int and not dtype.is_bool and dtype.bits <= 32


_PYTHON_TYPES = {"int64": "int", "float64": "float", "bool": "bool"}
_TUPLES = {Category.SHAPE: "rx.ShapeTuple", Category.TUPLE: "tuple"}


@dataclass(slots=True)
class QuickCheck:
    """A quick check: conditions on the structure, then variable bindings, then comparisons."""

    structure: list[ast.expr] = field(default_factory=list)
    binds: list[tuple[tir.Var, ast.expr]] = field(default_factory=list)
    comparisons: list[ast.expr] = field(default_factory=list)
    needs_full_check: bool = False


class CheckLowering:
    """Writes the quick check of several values; the variables that they bind join `size_names`."""

    def __init__(
        self,
        size_names: dict[tir.Var, str],
        sizes: SizeLowering,
        shape_name: Callable[[rx.Var], str | None],
        dtype_name: Callable[[str], str],
        new_name: Callable[[str], str] | None,
    ) -> None:
        self._size_names = size_names
        self._sizes = sizes
        self._shape_name = shape_name
        self._dtype_name = dtype_name
        self._new_name = new_name
        self._deferred: list[Callable[[], None]] = []
        self.check = QuickCheck()

    def add(self, value: ast.expr, sinfo: rx.StructInfo | None) -> None:
        """Check `value`, which may be evaluated several times, against `sinfo`."""
        scalar = isinstance(sinfo, (rx.PrimStructInfo, rx.ObjectStructInfo)) or sinfo is None
        if isinstance(value, ast.Constant) and not scalar:
            # A literal is only a scalar, and `4.dtype` is not valid Python.
            self.check.needs_full_check = True
            return
        for part in () if sinfo is None else components(sinfo):
            self._component(reduce(py.item, part.path, value), part)

    def _component(self, value: ast.expr, part: Component) -> None:
        out, dtype = self.check.structure, part.dtype
        match part.categories:
            case (Category.TENSOR,):
                self._tensor(value, part)
            case (Category.PRIM,):
                kind = _PYTHON_TYPES.get(dtype) or f"{self._dtype_name(dtype)}.type"
                out.append(_has_type(value, kind))
                if part.sizes is not None:
                    whole = py.call("bool" if dtype.is_bool else "int", value)
                    actual = value if dtype.is_float else whole
                    self._size(actual, part.sizes[0], compared=value)
            case (Category.SHAPE | Category.TUPLE as category,):
                out.append(_has_type(value, _TUPLES[category]))
                if part.count >= 0:
                    out.append(py.compare(py.call("len", value), ast.Eq, py.code(part.count)))
                if part.sizes is not None:
                    self._dimensions(value, part.sizes)
            case ():
                pass
            case _:
                self.check.needs_full_check = True

    def finish(self) -> QuickCheck:
        """The check of all values that were added."""
        for compare in self._deferred:
            compare()
        return self.check

    def _tensor(self, value: ast.expr, part: Component) -> None:
        out = self.check.structure
        out.append(_has_type(value, "ndarray"))
        actual = py.attribute(value, "dtype")
        if part.dtype.is_void:
            out.append(py.call("rx.holds_numbers", actual))
        else:
            out.append(py.compare(actual, ast.Eq, py.path(self._dtype_name(part.dtype))))
        shape, sizes = py.attribute(value, "shape"), part.sizes
        if sizes is not None and all(isinstance(size, tir.IntImm) for size in sizes):
            self._same(shape, sizes, out)
            return
        if part.count >= 0:
            out.append(py.compare(py.attribute(value, "ndim"), ast.Eq, py.code(part.count)))
        if sizes is not None:
            self._dimensions(shape, sizes)
        elif (shape_var := part.shape_var) is not None:
            self._deferred.append(lambda: self._same_as_var(shape, shape_var))

    def _same_as_var(self, shape: ast.expr, shape_var: rx.Var) -> None:
        name = self._shape_name(shape_var)
        if name is None:
            self.check.needs_full_check = True
        else:
            self.check.comparisons.append(py.compare(shape, ast.Eq, py.path(name)))

    def _same(self, actual: ast.expr, dims: Sequence[tir.PrimExpr], out: list[ast.expr]) -> None:
        expected = py.tuple_of(self._sizes.write(d) for d in dims)
        out.append(py.compare(actual, ast.Eq, expected))

    def _dimensions(self, actual: ast.expr, dims: Sequence[tir.PrimExpr]) -> None:
        """Compare all dimensions at once if that cannot fail, or else from left to right (MC-8)."""
        simple = all(isinstance(d, (tir.Var, tir.IntImm)) for d in dims)
        if simple and not any(map(self._is_new, dims)):
            self._deferred.append(lambda: self._same(actual, dims, self.check.comparisons))
            return
        for axis, expr in enumerate(dims):
            self._size(py.item(actual, axis), expr)

    def _is_new(self, expr: tir.PrimExpr) -> bool:
        return isinstance(expr, tir.Var) and expr not in self._size_names

    def _size(
        self, actual: ast.expr, expr: tir.PrimExpr, *, compared: ast.expr | None = None
    ) -> None:
        if self._is_new(expr) and self._new_name is not None:
            assert isinstance(expr, tir.Var)
            self._size_names[expr] = self._new_name(expr.name)
            self.check.binds.append((expr, actual))
            return

        if _may_divide_by_zero(expr):  # the full check reports the position of the error
            self.check.needs_full_check = True
            return

        def compare() -> None:
            expected = self._sizes.write(expr)
            self.check.comparisons.append(py.compare(compared or actual, ast.Eq, expected))

        self._deferred.append(compare)


def _may_divide_by_zero(expr: tir.PrimExpr) -> bool:
    return any(
        isinstance(node, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod))
        and not isinstance(node.b, tir.IntImm)
        for node in walk(expr)
    )


def _has_type(value: ast.expr, kind: str) -> ast.expr:
    return py.compare(py.call("type", value), ast.Is, py.path(kind))
