"""Operators that create, compute, rearrange, select, sort or reduce the elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, Protocol, TypeAlias

from relaxpy.ir.relax.nodes import ShapeExpr, Var, const
from relaxpy.ir.relax.op import builtin, nn as relax_nn
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


class Unary(Protocol):
    """An operator on one tensor; `name` is the hint for the variable."""

    def __call__(self, x: Tensor, name: str = ...) -> Tensor:
        """The result of the operator."""


class Binary(Protocol):
    """An operator on two tensors that broadcast; `name` is the hint for the variable."""

    def __call__(self, a: Tensor, b: Tensor, name: str = ...) -> Tensor:
        """The result of the operator."""


def _unary(op: str, hint: str | None = None) -> Unary:
    leaf = op.rpartition(".")[2]

    @user_facing
    def function(x: Tensor, name: str = hint or leaf) -> Tensor:
        operator: Any = reduce(getattr, op.split("."), R)
        return emit_tensor(operator(expr_of(x)), name)

    function.__name__ = function.__qualname__ = leaf
    function.__doc__ = f"`relax.{op}` of a tensor. Errors: as for the operator."
    return function


def _binary(op: str, hint: str | None = None) -> Binary:
    @user_facing
    def function(a: Tensor, b: Tensor, name: str = hint or op) -> Tensor:
        return emit_tensor(getattr(R, op)(expr_of(a), expr_of(b)), name)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`relax.{op}` of two tensors. Errors: as for the operator."
    return function


add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply", "mul")
divide = _binary("divide")
less = _binary("less")
less_equal = _binary("less_equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
equal = _binary("equal")
not_equal = _binary("not_equal")

relu = _unary("nn.relu")
silu = _unary("nn.silu")
sigmoid = _unary("sigmoid")
tanh = _unary("tanh")
exp = _unary("exp")
log = _unary("log")
floor = _unary("floor")
negative = _unary("negative", "neg")
square = _unary("square")
sqrt = _unary("sqrt")


@user_facing
def maximum(x1: Tensor, x2: Tensor, name: str = "maximum") -> Tensor:
    """The greater of each two elements."""
    return emit_tensor(R.maximum(expr_of(x1), expr_of(x2)), name)


@user_facing
def minimum(x1: Tensor, x2: Tensor, name: str = "minimum") -> Tensor:
    """The lesser of each two elements."""
    return emit_tensor(R.minimum(expr_of(x1), expr_of(x2)), name)


@user_facing
def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)."""
    return emit_tensor(relax_nn.relu6(expr_of(x)), name)


@user_facing
def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """x times the distribution function of the normal distribution at x.

    With `approximate="tanh"` the function is approximated.
    """
    op = R.nn.gelu_tanh if approximate == "tanh" else R.nn.gelu
    return emit_tensor(op(expr_of(x)), name)


@user_facing
def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds `threshold`."""
    return emit_tensor(R.nn.softplus(expr_of(x), beta=beta, threshold=threshold), name)


@user_facing
def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x where it is positive, and `alpha * x` elsewhere, with an `alpha` for each channel."""
    return emit_tensor(R.nn.prelu(expr_of(x), expr_of(alpha)), name)


@user_facing
def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """The tensor in another datatype, or itself if it has this one."""
    expr = expr_of(x)
    return x if x.dtype == dtype else emit_tensor(R.astype(expr, dtype), name)


@user_facing
def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    """The elements of `x1` where `condition` is not zero, and of `x2` elsewhere."""
    chosen = astype(condition, "bool")
    return emit_tensor(R.where(expr_of(chosen), expr_of(x1), expr_of(x2)), name)
