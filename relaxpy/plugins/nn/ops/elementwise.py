"""Operators on each element of one, two or three tensors."""

from __future__ import annotations

from functools import reduce
from typing import Any, Protocol

from relaxpy.ir.relax.op import nn as relax_nn
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.nn.core import Tensor, emit_tensor, expr_of
from relaxpy.support.entry import user_facing


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
