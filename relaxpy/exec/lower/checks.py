"""Checks against infos as inline Python: conditions that hold for every fitting value.

They are quick, and may fail for an odd value that does fit (a subclass, say): the full check that
follows a failure decides.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relaxpy.exec import python_ast as py
from relaxpy.exec.lower.sizes import SizeLowering
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir

_PYTHON_TYPES = {"int64": "int", "float64": "float", "bool": "bool"}


@dataclass(slots=True)
class QuickCheck:
    """What to test first, what to bind then, and what to compare after that."""

    structure: list[ast.expr] = field(default_factory=list)
    binds: list[tuple[tir.Var, ast.expr]] = field(default_factory=list)
    comparisons: list[ast.expr] = field(default_factory=list)
    always_full: bool = False


class CheckLowering:
    """Writes the quick check of several values; `size_names` grows by what they bind."""

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
        self._later: list[Callable[[], None]] = []
        self.check = QuickCheck()

    def add(self, value: ast.expr, info: rx.StructInfo | None) -> None:
        """Check `value`, an expression that may be written several times, against `info`."""
        out = self.check.structure
        scalar = isinstance(info, (rx.PrimStructInfo, rx.ObjectStructInfo)) or info is None
        if isinstance(value, ast.Constant) and not scalar:
            # A literal is none of the others, and `4.dtype` is not even Python.
            self.check.always_full = True
            return
        match info:
            case rx.TensorStructInfo():
                self._tensor(value, info)
            case rx.PrimStructInfo(dtype=dtype, value=expected):
                kind = _PYTHON_TYPES.get(dtype) or f"{self._dtype_name(dtype)}.type"
                out.append(_has_type(value, kind))
                if expected is not None:
                    whole = py.call("bool" if dtype.is_bool else "int", value)
                    found = value if dtype.is_float else whole
                    self._size(found, expected, compared=value)
            case rx.ShapeStructInfo(values=values, ndim=ndim):
                out.append(_has_type(value, "rx.ShapeTuple"))
                if ndim >= 0:
                    length = py.call("len", value)
                    out.append(py.compare(length, ast.Eq, py.code(ndim)))
                if values is not None:
                    self._dimensions(value, values)
            case rx.TupleStructInfo(fields=fields):
                out.append(_has_type(value, "tuple"))
                length = py.call("len", value)
                out.append(py.compare(length, ast.Eq, py.code(len(fields))))
                for i, part in enumerate(fields):
                    self.add(py.item(value, i), part)
            case rx.FuncStructInfo():
                self.check.always_full = True
            case _:
                return

    def finish(self) -> QuickCheck:
        """The check, once everything was added."""
        for compare in self._later:
            compare()
        return self.check

    def _tensor(self, value: ast.expr, info: rx.TensorStructInfo) -> None:
        out = self.check.structure
        out.append(_has_type(value, "ndarray"))
        found = py.attribute(value, "dtype")
        if info.dtype.is_void:
            out.append(py.call("rx.holds_numbers", found))
        else:
            out.append(py.compare(found, ast.Eq, py.path(self._dtype_name(info.dtype))))
        shape = py.attribute(value, "shape")
        if isinstance(info.shape, rx.ShapeExpr):
            dims = info.shape.values
            if all(isinstance(d, tir.IntImm) for d in dims):
                self._same(shape, dims, out)
                return
            ndim = py.attribute(value, "ndim")
            out.append(py.compare(ndim, ast.Eq, py.code(len(dims))))
            self._dimensions(shape, dims)
            return
        if info.ndim >= 0:
            ndim = py.attribute(value, "ndim")
            out.append(py.compare(ndim, ast.Eq, py.code(info.ndim)))
        if isinstance(info.shape, rx.Var):
            shape_var = info.shape
            self._later.append(lambda: self._same_as_var(shape, shape_var))

    def _same_as_var(self, shape: ast.expr, shape_var: rx.Var) -> None:
        name = self._shape_name(shape_var)
        if name is None:
            self.check.always_full = True
        else:
            self.check.comparisons.append(py.compare(shape, ast.Eq, py.path(name)))

    def _same(self, found: ast.expr, dims: Sequence[tir.PrimExpr], out: list[ast.expr]) -> None:
        expected = py.tuple_of(self._sizes.write(d) for d in dims)
        out.append(py.compare(found, ast.Eq, expected))

    def _dimensions(self, found: ast.expr, dims: Sequence[tir.PrimExpr]) -> None:
        """All at once where that is sure to give an answer, else from left to right (MC-8)."""
        sure = all(isinstance(d, (tir.Var, tir.IntImm)) for d in dims)
        if sure and not any(map(self._is_new, dims)):
            self._later.append(lambda: self._same(found, dims, self.check.comparisons))
            return
        for axis, expr in enumerate(dims):
            self._size(py.item(found, axis), expr)

    def _is_new(self, expr: tir.PrimExpr) -> bool:
        return isinstance(expr, tir.Var) and expr not in self._size_names

    def _size(
        self, found: ast.expr, expr: tir.PrimExpr, *, compared: ast.expr | None = None
    ) -> None:
        if self._is_new(expr) and self._new_name is not None:
            assert isinstance(expr, tir.Var)
            self._size_names[expr] = self._new_name(expr.name)
            self.check.binds.append((expr, found))
            return

        if _may_divide_by_zero(expr):  # the full check says of which info that is
            self.check.always_full = True
            return

        def compare() -> None:
            expected = self._sizes.write(expr)
            self.check.comparisons.append(py.compare(compared or found, ast.Eq, expected))

        self._later.append(compare)


def _may_divide_by_zero(expr: tir.PrimExpr) -> bool:
    return any(
        isinstance(node, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod))
        and not isinstance(node.b, tir.IntImm)
        for node in walk(expr)
    )


def _has_type(value: ast.expr, kind: str) -> ast.expr:
    return py.compare(py.call("type", value), ast.Is, py.path(kind))
