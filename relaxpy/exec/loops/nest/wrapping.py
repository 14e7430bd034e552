"""Indices, sizes and bounds that are computed from data, whose arithmetic wraps around.

The polynomials of indices (`as_poly`) take integers as unbounded. That holds of loop variables and
sizes alone: elements of tensors, scalar arguments and what is computed of them may have any value.
Arithmetic of these is hidden in a `reinterpret` of its own datatype, which is an atom of
polynomials, and is computed as stored values are.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, TypeAlias, cast

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, occurrences, rewrite, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.intrinsics import is_external
from relaxpy.ir.tir.prim_func import PrimFunc, scalars_of
from relaxpy.ir.tir.stmt import Allocate, LetStmt, Stmt
from relaxpy.support.dataclass import replace

_UNKNOWN: Final = 1
"""The magnitude of a variable whose bounds are not literals: no index is so large."""


_Part: TypeAlias = "tir.PrimExpr | None"


def wrapped(value: tir.PrimExpr) -> tir.PrimExpr:
    """`value` as an atom of polynomials, computed in its datatype."""
    return tir.Call(value.dtype, "tir.reinterpret", (value,))


def with_exact_layouts(func: PrimFunc) -> PrimFunc:
    """`func` with exact sizes, strides and offsets of the buffers that are not arguments."""
    data = {*scalars_of(func)}
    for let in occurrences(func.body, LetStmt):
        if let.var.dtype.is_int and Wrapping(data, ()).is_data(let.value):
            data.add(let.var)
    wrapping = Wrapping(data, ())
    arguments = {*func.buffer_map.values()}

    def exact(node: Node) -> Node | None:
        match node:
            case Buffer(shape=shape, strides=strides, elem_offset=offset) if node not in arguments:
                layout = tuple(map(wrapping.exact, (*shape, *strides, offset)))
                if all(a is b for a, b in zip(layout, (*shape, *strides, offset), strict=True)):
                    return None
                shape, strides = layout[: len(shape)], layout[len(shape) : -1]
                return replace(node, shape=shape, strides=strides, elem_offset=layout[-1])
            case Allocate(extents=extents):
                return replace(node, extents=tuple(map(wrapping.exact, extents)))
            case _:
                return None

    return replace(func, body=cast("Stmt", rewrite(func.body, exact)))


class Wrapping:
    """Hides what may wrap around, where `data` are variables of any value, inside loops `axes`."""

    def __init__(self, data: Container[tir.Var], axes: Sequence[Axis]) -> None:
        self.data = data
        self.axes = axes
        self._known: dict[Node, bool] = {}

    def is_data(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` is computed from elements, results of calls, or variables in `data`."""
        known = self._known
        if expr not in known:
            for node in walk(expr):
                known[node] = (
                    isinstance(node, BufferLoad)
                    or (isinstance(node, tir.Var) and node in self.data)
                    or (isinstance(node, tir.Call) and is_external(node))
                    or any(map(known.get, children(node)))
                )
        return known[expr]

    def exact(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr`, whose value polynomials read."""
        if isinstance(expr, (tir.Var, tir.IntImm)) or not _is_wide(expr):
            return expr
        match expr:
            case tir.Add() | tir.Sub() | tir.Mul():
                return wrapped(expr) if self.is_data(expr) else self._below(expr)
            case tir.Cast() if self.may_wrap(expr):
                return wrapped(expr)
            case tir.Cast() | tir.Min() | tir.Max() | tir.Select():
                return self._below(expr)
            case tir.FloorDiv(b=b) | tir.Div(b=b) if getattr(b, "value", -1) == -1 and (
                self.is_data(expr)
            ):
                return wrapped(expr)  # of the minimum, the quotient wraps around
            case tir.FloorDiv() | tir.FloorMod() | tir.Div() | tir.Mod():
                return self._below(expr)
            case tir.Call(op=Op(name="tir.if_then_else")):
                return self._below(expr)
            case _:
                return expr

    def _below(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` with exact operands."""
        return map_children(
            lambda child: self.exact(child) if isinstance(child, tir.PrimExpr) else child, expr
        )

    def may_wrap(self, node: tir.Cast) -> bool:
        """True if a cast between integers may change the value."""
        source, target = node.value.dtype, node.dtype
        if not (source.is_int and target.is_int) or source.is_bool or target.is_bool:
            return False
        bits = target.bits - (target.family == "int")
        keeps_sign = source.family == target.family or target.family == "int"
        if keeps_sign and source.bits - (source.family == "int") <= bits:
            return False
        if isinstance(node.value, tir.Var) and node.value not in self.data:
            return False
        is_unsigned = source.family == "uint" and not isinstance(node.value, tir.IntImm)
        return is_unsigned or self.is_data(node.value) or self._magnitude(node.value) >> bits > 0

    def index(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr`, whose value polynomials read if that is the index of an element.

        A datum may be added to a small number that does not wrap: a sum that does is outside.
        """
        if isinstance(expr, (tir.Var, tir.IntImm, BufferLoad)) or not _is_wide(expr):
            return expr
        match expr:
            case tir.Cast(value=inner) if _is_wide(inner) and not self.may_wrap(expr):
                return tir.Cast(expr.dtype, self.index(inner))
            case tir.Select(condition=test, true_value=yes, false_value=no):
                return tir.Select(test, self.index(yes), self.index(no))
            case tir.Call(op=Op(name="tir.if_then_else") as op, args=(test, yes, no)):
                return tir.Call(expr.dtype, op, (test, self.index(yes), self.index(no)))
            case tir.Add() | tir.Sub() | tir.Mul() if self.is_data(expr):
                return self._sum(expr)
            case _:
                return self.exact(expr)

    def _sum(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        known, data = self._parts(expr)
        if known is not None and self._magnitude(known) >> (expr.dtype.bits - 2):
            return wrapped(expr)
        match data:
            case tir.Sub(a=tir.IntImm(value=0), b=datum) if not isinstance(datum, _ARITHMETIC):
                return self._terms(expr)
            case tir.Add() | tir.Sub() | tir.Mul():
                return wrapped(data) if known is None else ops.add(wrapped(data), known)
            case _:
                return self._terms(expr)

    def _terms(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """A sum with exact terms and factors."""
        if not isinstance(expr, _ARITHMETIC):
            return self.exact(expr)
        return type(expr)(self._terms(expr.a), self._terms(expr.b))

    def _parts(self, expr: tir.PrimExpr) -> tuple[_Part, _Part]:
        """The parts of a sum without data, and with data."""
        if not self.is_data(expr):
            return self.exact(expr), None
        match expr:
            case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
                (known, data), (known_b, data_b) = self._parts(a), self._parts(b)
                return _joined(type(expr), known, known_b), _joined(type(expr), data, data_b)
            case tir.Mul(a=a, b=b) if not (self.is_data(a) and self.is_data(b)):
                term, factor = (a, b) if self.is_data(a) else (b, a)
                known, data = self._parts(term)
                factor = self.exact(factor)
                return _times(known, factor), _times(data, factor)
            case tir.Mul():
                return None, expr
            case _:
                return None, self.exact(expr)

    def _magnitude(self, expr: tir.PrimExpr) -> int:
        """A bound of the absolute value of `expr`, which is made of loop variables and sizes."""
        match expr:
            case tir.IntImm(value=value):
                return abs(value)
            case tir.Var():
                for axis in self.axes:
                    if axis.var is expr:
                        ends = (e for e in (axis.start, axis.stop) if isinstance(e, tir.IntImm))
                        return max((abs(end.value) for end in ends), default=_UNKNOWN)
                return _UNKNOWN
            case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
                return self._magnitude(a) + self._magnitude(b)
            case tir.Mul(a=a, b=b):
                return self._magnitude(a) * self._magnitude(b)
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                return max(self._magnitude(a), self._magnitude(b))
            case tir.Select(true_value=a, false_value=b):
                return max(self._magnitude(a), self._magnitude(b))
            case tir.Call(op=Op(name=name), args=(a, b)) if name.startswith("tir.bitwise_"):
                return self._magnitude(a) + self._magnitude(b)
            case tir.Call(op=Op(name="tir.shift_left"), args=(a, tir.IntImm(value=by))):
                return self._magnitude(a) << min(by, expr.dtype.bits)
            case tir.FloorDiv(a=a) | tir.Div(a=a) | tir.Cast(value=a):
                return self._magnitude(a)
            case tir.FloorMod(b=b) | tir.Mod(b=b):
                return self._magnitude(b)
            case _:
                return _UNKNOWN


_ARITHMETIC: Final = (tir.Add, tir.Sub, tir.Mul)


def _joined(kind: type[tir.PrimExpr], a: _Part, b: _Part) -> _Part:
    """The sum or the difference of two operands, or the only one."""
    if b is None:
        return a
    if kind is tir.Add:
        return b if a is None else tir.Add(a, b)
    return tir.Sub(ops.const(0, b.dtype) if a is None else a, b)


def _times(part: _Part, factor: tir.PrimExpr) -> _Part:
    return None if part is None else tir.Mul(part, factor)


def _is_wide(expr: tir.PrimExpr) -> bool:
    """True for the datatypes whose arithmetic polynomials read."""
    return expr.dtype.family == "int" and expr.dtype.bits >= 32
