"""The values and outputs of array expressions while they are emitted."""

from __future__ import annotations

import ast
from typing import TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.expr import Var

Guards: TypeAlias = tuple[ast.expr, ...]
"""Conditions on iterations. Values in other iterations are unused and must not cause errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An array over `dims`, or a scalar; its `temporary` is free after its last use.

    A `plain` value is a Python number, which takes its datatype from the other operand.
    """

    node: ast.expr
    dims: frozenset[Var]
    dtype: DataType
    temporary: str | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The array that the last operation of an expression writes; `free` if no operand reads it."""

    node: ast.expr
    dims: frozenset[Var]
    dtype: DataType
    free: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A buffer of which only some rows are present: `size` of them from `start` along `axis`."""

    axis: int
    start: IndexPoly
    size: IndexPoly
