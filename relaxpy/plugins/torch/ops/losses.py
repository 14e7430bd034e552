"""Losses of classes from the inputs of a model's last layer, which PyTorch computes in chunks."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import dtype_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter


def _each(
    cx: Context,
    x: Expr,
    weight: Expr,
    classes: Expr,
    bias: Expr | None,
    importance: Expr | None,
    ignored: int,
) -> tuple[Expr, Expr]:
    """The loss of each row, and its weight, which is 0 for the class that is ignored."""
    logits = R.matmul(x, R.permute_dims(weight, [1, 0]))
    if bias is not None:
        logits = R.add(logits, bias)
    target = cx.emit(R.astype(classes, "int64"))
    kept = cx.emit(R.not_equal(target, const(ignored, "int64")))
    place = cx.emit(R.where(kept, target, const(0, "int64")))
    logs = R.nn.log_softmax(logits, -1)
    chosen = R.squeeze(R.gather_elements(logs, R.expand_dims(place, 1), 1), [1])
    weights = R.astype(kept, dtype_of(x))
    if importance is not None:
        weights = R.multiply(weights, R.take(importance, place, 0))
    shared = cx.emit(weights)
    return R.negative(R.multiply(shared, chosen)), shared


@converter("_linear_cross_entropy_batch_chunked_no_reduction", namespace="torch_nn", wide=True)
def linear_cross_entropy_of_each(
    cx: Context, x: Expr, weight: Expr, classes: Expr, bias: Expr | None,
    importance: Expr | None, ignored: int, *rest: Any,
) -> Expr:  # fmt: skip
    return _each(cx, x, weight, classes, bias, importance, ignored)[0]


@converter("_linear_cross_entropy_batch_chunked", namespace="torch_nn", wide=True)
def linear_cross_entropy(
    cx: Context, x: Expr, weight: Expr, classes: Expr, bias: Expr | None,
    importance: Expr | None, reduction: str, ignored: int, smoothing: float, *rest: Any,
) -> tuple[Expr, ...]:  # fmt: skip
    if cx.uses(1, 2, 3) or smoothing:
        raise UnsupportedError("its results for gradients, and smoothed labels")
    losses, weights = _each(cx, x, weight, classes, bias, importance, ignored)
    total = R.sum(losses)
    if reduction == "mean":
        total = R.divide(total, R.sum(weights))
    none = R.zeros((0,), dtype_of(x))
    return total, none, none, none
