"""Tensors of integers whose elements are known when a model is imported, as numbers or expressions.

Dynamic models compute shapes by operators on small tensors (`Shape`, `Gather`, `Concat`, …).
`Contents` carries such a tensor element by element, so that what it ends in, a `Reshape` for
example, has a shape of symbolic sizes. A tensor that a program needs is made of it on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from relaxpy.ir.arith import Analyzer
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.support.dataclass import dataclass

Element: TypeAlias = PrimExpr | int | float | bool
#: The number of elements up to which a tensor is carried element by element.
LIMIT = 1024


@dataclass(frozen=True, eq=False)
class Contents:
    """A tensor whose elements are numbers or expressions, in an array of objects."""

    array: np.ndarray[Any, np.dtype[Any]]
    dtype: str

    @property
    def elements(self) -> list[Element]:
        """The elements in row-major order."""
        return list(self.array.reshape(-1))

    @property
    def is_constant(self) -> bool:
        """True if every element is a number."""
        return not any(isinstance(element, PrimExpr) for element in self.elements)


def objects(elements: Iterable[Element], shape: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """An array of objects of this shape."""
    items = list(elements)
    result = np.empty(len(items), object)
    for k, item in enumerate(items):
        result[k] = item
    return result.reshape(tuple(shape))


def number(element: Element, analyzer: Analyzer | None = None) -> Element:
    """The element simplified: an int, float or bool where it is known."""
    if not isinstance(element, PrimExpr):
        return element
    simple = (analyzer or Analyzer()).simplify(element)
    if isinstance(simple, tir.IntImm):
        return bool(simple.value) if str(simple.dtype) == "bool" else int(simple.value)
    if isinstance(simple, tir.FloatImm):
        return float(simple.value)
    return simple


def to_integer(element: Element) -> Element | None:
    """The element as an int64, rounded towards zero; None unless it is a ratio of known integers.

    A float that stands for a size times a ratio (`Cast`, `Mul`, `Floor`, as models that resize by a
    scale compute it) is the integer expression `size * p // q`.
    """
    if isinstance(element, (bool, np.bool_)):
        return int(element)
    if not isinstance(element, PrimExpr):
        value = float(element)
        return int(value) if np.isfinite(value) else None
    ratio = ratio_of(element)
    if ratio is None:
        return None
    above, below = ratio
    return number(above if below == 1 else above // below)


def ratio_of(element: Element) -> tuple[Any, int] | None:
    """The numerator and the denominator of an expression; None unless it is a ratio of integers."""
    if not isinstance(element, PrimExpr):
        exact = Fraction(float(element)).limit_denominator(1 << 16)
        return exact.numerator, exact.denominator
    if "int" in str(element.dtype):
        return element if str(element.dtype) == "int64" else tir.Cast("int64", element), 1
    match element:
        case tir.FloatImm(value=value):
            return ratio_of(value)
        case tir.Cast(value=value):
            return ratio_of(value)
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None:
                return None
            sign = 1 if isinstance(element, tir.Add) else -1
            return left[0] * right[1] + sign * right[0] * left[1], left[1] * right[1]
        case tir.Mul(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None:
                return None
            return left[0] * right[0], left[1] * right[1]
        case tir.Div(a=a, b=b):
            left, right = ratio_of(a), ratio_of(b)
            if left is None or right is None or not isinstance(right[0], int) or right[0] <= 0:
                return None
            return left[0] * right[1], left[1] * right[0]
        case tir.Call(op=Op(name="tir.floor" | "tir.ceil" as op), args=args):
            inner = ratio_of(args[0])
            if inner is None:
                return None
            above, below = inner
            up = below - 1 if op == "tir.ceil" else 0
            return (above + up) // below if below != 1 else above, 1
        case _:
            return None
