"""The number of arithmetic operations of a kernel, for the sizes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from relaxpy.exec.kernel.nest.nodes import Branch, Item, Loop, Store, WhileLoop
from relaxpy.exec.kernel.nest.read import read
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import children
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import BinaryOpExpr, Call, PrimExpr, Select, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute


class _UnknownError(Exception):
    """The number depends on data."""


Shape: TypeAlias = tuple[int, ...] | int | None
"""The shape of an array, an integer, or something else."""


def shape_of(arg: object) -> Shape:
    """The shape of an argument, for `operation_count`."""
    if isinstance(arg, np.ndarray):
        shape: tuple[int, ...] = arg.shape
        return shape
    return int(arg) if isinstance(arg, (int, np.integer)) else None


def operation_count(func: PrimFunc, shapes: Sequence[Shape]) -> int | None:
    """The arithmetic operations of a call according to its source; None if they depend on data.

    A function such as `exp` counts as one operation, those of indices and conditions do not count.
    Of the branches of a condition, the one with more operations counts.
    """
    shape_vars = frozenset(v for b in func.buffer_map.values() for v in b.shape if type(v) is Var)
    try:
        return _of_items(read(func, shape_vars).items, _sizes(func, shapes))
    except _UnknownError:
        return None


def _sizes(func: PrimFunc, shapes: Sequence[Shape]) -> dict[Var, PrimExpr]:
    """The values of the variables that the arguments determine."""
    values: dict[Var, PrimExpr] = {}
    for param, shape in zip(func.params, shapes, strict=False):
        buffer = func.buffer_of(param)
        if isinstance(shape, int):
            values[param] = ops.const(shape, param.dtype)
        elif buffer is not None and shape is not None:
            for size, value in zip(buffer.shape, shape, strict=False):
                if isinstance(size, Var):
                    values[size] = ops.const(value, size.dtype)
    return values


def _of_items(items: Sequence[Item], values: Mapping[Var, PrimExpr]) -> int:
    return sum(_of_item(item, values) for item in items)


def _of_item(item: Item, values: Mapping[Var, PrimExpr]) -> int:
    match item:
        case Loop(axis=axis, body=body):
            start, stop = (_number(bound, values) for bound in (axis.start, axis.stop))
            if stop <= start:
                return 0
            # Bounds that depend on outer loops are taken at their midpoints.
            middle = ops.const(start + (stop - start - 1) // 2, axis.var.dtype)
            return (stop - start) * _of_items(body, {**values, axis.var: middle})
        case Branch(body=body, orelse=orelse):
            return max(_of_items(body, values), _of_items(orelse, values))
        case Store(value=value):
            return _of_value(value)
        case WhileLoop():
            raise _UnknownError
        case _:
            return 0


def _number(expr: PrimExpr, values: Mapping[Var, PrimExpr]) -> int:
    number = as_poly(substitute(expr, values)).constant
    if number is None:
        raise _UnknownError
    return number


def _of_value(expr: PrimExpr) -> int:
    match expr:
        case BufferLoad():
            return 0
        case (
            Select(true_value=yes, false_value=no)
            | Call(op=Op(name="tir.if_then_else"), args=(_, yes, no))
        ):
            return max(_of_value(yes), _of_value(no))
        case _:
            inner = sum(_of_value(c) for c in children(expr) if isinstance(c, PrimExpr))
            counts = isinstance(expr, (BinaryOpExpr, Call)) and expr.dtype.family != "bool"
            return inner + counts
