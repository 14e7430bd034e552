"""Functions of `T` that compute values and may take the datatype by keyword."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr


def intrinsic(name: str) -> Callable[..., PrimExpr]:
    """Return the intrinsic `name` as a function of its operands."""
    function: Callable[..., PrimExpr] | None = getattr(intrin, name, None)
    if function is not None:
        return function

    def call(x: ExprLike) -> PrimExpr:
        value = ops.convert(x)
        return tir.Call(value.dtype, f"tir.{name}", (value,))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of x, of the datatype of x."
    return call


def bitwise(name: str) -> Callable[..., PrimExpr]:
    """Return the bit operation `name` as a function of its operands."""

    def binary(x: ExprLike, y: ExprLike) -> PrimExpr:
        return ops.bitwise(f"tir.{name}", x, y)

    def inverted(x: ExprLike) -> PrimExpr:
        return ~ops.convert(x)

    call: Callable[..., PrimExpr] = inverted if name == "bitwise_not" else binary
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of integers."
    return ignoring_dtype(call)


def ignoring_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """Wrap `function` so that it accepts `dtype=`, as in TVM, and ignores it."""

    @wraps(function)
    def call(*args: Any, dtype: object = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs)

    return call


def leading_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """Wrap `function` so that `dtype=` may replace its first argument, as in TVM."""

    @wraps(function)
    def call(*args: Any, dtype: str | None = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs) if dtype is None else function(dtype, *args, **kwargs)

    return call
