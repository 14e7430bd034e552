"""Losses as tensor expressions."""

from __future__ import annotations

from relaxpy.errors import unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import reduction as reductions
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, divide
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["nll_loss"]


def _terms(
    predictions: Tensor, targets: Tensor, weights: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss of each target, and its weight; both are 0 where the target is ignored."""
    wide = accumulator(predictions.dtype)

    def class_of(*index: PrimExpr) -> PrimExpr:
        target = targets(*index)
        return ops.cast_to(target, "int32") if target.dtype.is_bool else target

    def is_ignored(target: PrimExpr) -> PrimExpr:
        """Unsigned targets are compared as int64, which can represent a negative `ignore_index`."""
        return ops.compare(tir.EQ, ops.cast_to(target, "int64"), ops.const(ignore_index, "int64"))

    def weight(*index: PrimExpr) -> PrimExpr:
        target = class_of(*index)
        class_weight = ops.const(1, wide) if weights is None else ops.cast_to(weights(target), wide)
        return intrin.if_then_else(is_ignored(target), ops.const(0, wide), class_weight)

    def loss(*index: PrimExpr) -> PrimExpr:
        target = class_of(*index)
        index_of_class = (*index[:1], target, *index[1:])
        value = ops.mul(ops.cast_to(predictions(*index_of_class), wide), ops.const(-1, wide))
        if weights is not None:
            value = ops.mul(value, ops.cast_to(weights(target), wide))
        return intrin.if_then_else(is_ignored(target), ops.const(0, wide), value)

    return (
        computed(targets.shape, loss, "nll_loss"),
        computed(targets.shape, weight, "nll_weight"),
    )


def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """The negative log-likelihood of targets, of the log-probabilities of classes along axis 1.

    A single instance has them along axis 0. Losses are multiplied by the weights of their classes;
    "mean" divides their sum by the sum of the weights, and targets that are ignored count for
    neither. float16 is computed in float32.

    Errors:
        MisuseError: the reduction is not "none", "sum" or "mean".
    """
    terms, weight = _terms(predictions, targets, weights, ignore_index)
    if reduction == "none":
        return as_dtype(terms, predictions.dtype)
    total = reductions.sum(terms)
    if reduction == "mean":
        total = divide(total, reductions.sum(weight))
    elif reduction != "sum":
        raise unexpected(reduction, "a reduction is 'none', 'sum' or 'mean'")
    return as_dtype(total, predictions.dtype)
