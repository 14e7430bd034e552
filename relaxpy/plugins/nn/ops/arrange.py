"""Operators that create tensors, and that rearrange, select, sort or reduce their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from relaxpy.ir.relax.nodes import ShapeExpr, Var, const
from relaxpy.ir.relax.op import builtin
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.core import Tensor, emit_tensor, expr_of, items_of, wrap_nested
from relaxpy.support.entry import user_facing

IntExpr: TypeAlias = int | tir.PrimExpr
Axes: TypeAlias = int | list[int] | None


@user_facing
def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """The tensor with a new axis of size 1 at `dim`."""
    return emit_tensor(R.expand_dims(expr_of(x), dim), name)


@user_facing
def squeeze(x: Tensor, axis: Axes = -1, name: str = "squeeze") -> Tensor:
    """The tensor without axes of size 1: those of `axis`, or all for None."""
    return emit_tensor(R.squeeze(expr_of(x), axis), name)


@user_facing
def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors one after the other along an axis."""
    return emit_tensor(R.concat([expr_of(tensor) for tensor in items_of(x, "tensors")], dim), name)


@user_facing
def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """`chunks` slices of a tensor along an axis."""
    return wrap_nested(R.split(expr_of(x), chunks, dim), name)  # type: ignore[no-any-return]


@user_facing
def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Slices of a tensor along an axis: their number, or the indices at which later ones begin."""
    return wrap_nested(R.split(expr_of(ary), indices_or_sections, axis), name)  # type: ignore[no-any-return]


@user_facing
def broadcast_to(x: Tensor, shape: Sequence[IntExpr], name: str = "broadcast_to") -> Tensor:
    """The tensor, repeated along axes of size 1 to fill `shape`."""
    return emit_tensor(R.broadcast_to(expr_of(x), shape), name)


@user_facing
def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The tensor with its axes in another order, by default the reverse one.

    Without a `name`, that of the weight of a linear layer is one of the product, as in TVM.
    """
    expr = expr_of(x)
    if name is None:
        weight = expr.name_hint if isinstance(expr, Var) else ""
        name = weight.replace("linear", "matmul") if "linear" in weight else "permute_dims"
    return emit_tensor(R.permute_dims(expr, axes), name)


@user_facing
def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """The tensor with its axes in another order, for None the reverse one."""
    return emit_tensor(R.permute_dims(expr_of(x), axes), name)


@user_facing
def reshape(x: Tensor, shape: Sequence[IntExpr], name: str = "reshape") -> Tensor:
    """The elements in another shape: 0 keeps a dimension, and one may be -1."""
    return emit_tensor(R.reshape(expr_of(x), shape), name)


@user_facing
def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element repeated along an axis, or all in one row for None."""
    return emit_tensor(R.repeat(expr_of(x), repeats, axis), name)


@user_facing
def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """The elements at `indices` along an axis; without one, `x` has rank 1."""
    return emit_tensor(R.take(expr_of(x), expr_of(indices), axis), name)


@user_facing
def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Matrices with zeros below a diagonal; positive numbers are diagonals above the main one."""
    return emit_tensor(R.triu(expr_of(x), diagonal), name)


@user_facing
def arange(
    start: IntExpr,
    end: IntExpr | None = None,
    step: IntExpr = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """The numbers from `start` to before `end`; with one bound, from 0 to before it."""
    return emit_tensor(R.arange(start, end, step, dtype), name)


@user_facing
def full(
    shape: Sequence[IntExpr],
    fill_value: Tensor | float | tir.PrimExpr,
    dtype: str = "float32",
    name: str = "full",
) -> Tensor:
    """A tensor that has the same value, a number or a tensor of rank 0, everywhere."""
    if isinstance(fill_value, (tir.IntImm, tir.FloatImm)):
        fill_value = fill_value.value
    if isinstance(fill_value, (int, float)):
        return emit_tensor(R.full(shape, const(fill_value, dtype), dtype), name)
    return emit_tensor(R.full(shape, expr_of(fill_value), dtype), name)


@user_facing
def zeros(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return emit_tensor(R.zeros(shape, dtype), name)


@user_facing
def ones(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return emit_tensor(R.ones(shape, dtype), name)


@user_facing
def empty(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor with arbitrary elements."""
    allocation = builtin.alloc_tensor(ShapeExpr(tuple(shape)), dtype, runtime_device_index=0)  # type: ignore[arg-type]
    return emit_tensor(allocation, name)


@user_facing
def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "sum") -> Tensor:
    """The sum along some axes, or all for None."""
    return emit_tensor(R.sum(expr_of(x), axis, keepdims), name)


@user_facing
def max(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "max") -> Tensor:
    """The maximum along some axes, or all for None."""
    return emit_tensor(R.max(expr_of(x), axis, keepdims), name)


@user_facing
def min(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "min") -> Tensor:
    """The least element along some axes, or all for None."""
    return emit_tensor(R.min(expr_of(x), axis, keepdims), name)


@user_facing
def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Running sums along an axis, or of all elements for None; `exclusive` ones begin with 0."""
    return emit_tensor(R.cumsum(expr_of(data), axis, dtype, bool(exclusive)), name)


@user_facing
def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in order along an axis."""
    return emit_tensor(R.sort(expr_of(x), axis, descending), name)


@user_facing
def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """The indices of the elements in order along an axis."""
    return emit_tensor(R.argsort(expr_of(data), axis, descending, dtype), name)


@user_facing
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: Literal["both", "values", "indices"] = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The `k` largest or smallest elements along an axis, their indices, or a tuple of both."""
    return wrap_nested(R.topk(expr_of(data), k, axis, ret_type, largest, dtype), name)
