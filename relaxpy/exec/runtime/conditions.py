"""Conditions for a value to match struct info: one description for all that check values.

`Matcher` (`checks.py`) compares values with it, and has the messages. The quick checks of texts
(`program/lower/checks.py`) and native entries (`program/graph/parameters.py`) print it as code that
accepts fewer values; the others are left to the matcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from relaxpy.exec.runtime.values import Category
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """The conditions for a value, or the field of a field of it at `path`, to match `sinfo`.

    It has one of these `categories` (any: none), `count` dimensions or fields (any number: -1), and
    a `dtype` (any: Void). Its dimensions, or itself if it is a number, bind those of `sizes` that
    are new variables, and are equal to the others. A shape is that of `shape_var`, and the
    signature of a function is a subtype of `signature`. The first that fails is the error.
    """

    path: tuple[int, ...]
    sinfo: rx.StructInfo
    categories: tuple[Category, ...] = ()
    count: int = -1
    dtype: DataType = VOID
    sizes: tuple[PrimExpr, ...] | None = None
    shape_var: rx.Var | None = None
    signature: rx.FuncStructInfo | None = None


def components(sinfo: rx.StructInfo, path: tuple[int, ...] = ()) -> Iterator[Component]:
    """The components of a value with this struct info, a tuple before its fields."""
    assert isinstance(sinfo, rx.AnyStructInfo)
    match sinfo:
        case rx.ObjectStructInfo():
            yield Component(path, sinfo)
        case rx.TensorStructInfo(shape=shape, dtype=dtype, ndim=ndim):
            sizes = shape.values if isinstance(shape, rx.ShapeExpr) else None
            var = shape if isinstance(shape, rx.Var) else None
            yield Component(path, sinfo, (Category.TENSOR,), ndim, dtype, sizes, var)
        case rx.PrimStructInfo(dtype=dtype, value=value):
            sizes = None if value is None else (value,)
            yield Component(path, sinfo, (Category.PRIM,), -1, dtype, sizes)
        case rx.ShapeStructInfo(values=values, ndim=ndim):
            yield Component(path, sinfo, (Category.SHAPE,), ndim, VOID, values)
        case rx.TupleStructInfo(fields=fields):
            yield Component(path, sinfo, (Category.TUPLE,), len(fields))
            for number, field in enumerate(fields):
                yield from components(field, (*path, number))
        case rx.FuncStructInfo(params=None):
            yield Component(path, sinfo, (Category.PACKED_FUNC,))
        case rx.FuncStructInfo():
            kinds = Category.CLOSURE, Category.PRIM_FUNC
            yield Component(path, sinfo, kinds, signature=sinfo)
        case _:
            assert_never(sinfo)
