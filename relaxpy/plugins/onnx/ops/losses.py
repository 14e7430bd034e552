"""Losses of classes."""

from __future__ import annotations

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import converter

#: A class that no target is.
_NO_CLASS = -(1 << 31)


_REDUCTION = {"reduction": ("none", "mean", "sum")}


@converter("NegativeLogLikelihoodLoss", admitted=_REDUCTION)
def negative_log_likelihood_loss(
    cx: Context,
    x: Expr,
    target: Expr,
    weight: Expr | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Expr:
    ignored = _NO_CLASS if ignore_index is None else ignore_index
    return R.nn.nll_loss(x, target, weight, reduction, ignored)


@converter("SoftmaxCrossEntropyLoss", admitted=_REDUCTION)
def softmax_cross_entropy_loss(
    cx: Context,
    scores: Expr,
    labels: Expr,
    weights: Expr | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> list[Expr]:
    log_prob = cx.emit(R.nn.log_softmax(scores, 1), "log_prob")
    loss = negative_log_likelihood_loss(
        cx, log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return [loss, log_prob]
