"""Losses of classes, and the optimizers of the domain ai.onnx.preview.training.

An optimizer does one step for each of several tensors.
"""

from __future__ import annotations

from typing import Any

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.plugins.importing.tensors import dtype_of, scalar
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, converter

DOMAIN = "ai.onnx.preview.training"


def _groups(tensors: tuple[Expr, ...], size: int) -> list[tuple[Any, ...]]:
    """The tensors of each optimized one: all values come first, then all gradients, and so on."""
    if not tensors or len(tensors) % size:
        raise UnsupportedError(f"{len(tensors)} tensors are not a multiple of {size}")
    count = len(tensors) // size
    return [tuple(tensors[k::count]) for k in range(count)]


def _with_norm(gradient: Expr, x: Expr, factor: float) -> Expr:
    return x * scalar(factor, x) + gradient if factor else gradient


def _in_order(results: list[list[Expr]]) -> list[Expr]:
    return [value for kind in zip(*results, strict=True) for value in kind]


@converter("Adagrad", domain=DOMAIN)
def adagrad(
    cx: Context,
    rate: Expr,
    step: Expr,
    *tensors: Expr,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> list[Expr]:
    results = []
    for x, gradient, squares in _groups(tensors, 3):
        steps = R.astype(step, dtype_of(x)) * scalar(decay_factor, x)
        now = rate / (1 + steps)
        g = cx.emit(_with_norm(gradient, x, norm_coefficient))
        total = cx.emit(squares + g * g)
        scale = R.sqrt(total) + scalar(epsilon, x)
        results.append([x - now * g / scale, total])
    return _in_order(results)


@converter("Adam", domain=DOMAIN)
def adam(
    cx: Context,
    rate: Expr,
    step: Expr,
    *tensors: Expr,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-8,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> list[Expr]:
    results = []
    for x, gradient, mean, square in _groups(tensors, 4):
        g = cx.emit(_with_norm(gradient, x, norm_coefficient))
        m = _blend(cx, mean, g, alpha)
        v = _blend(cx, square, g * g, beta)
        steps = R.astype(step, dtype_of(x))
        one = scalar(1, x)
        corrected = rate * (
            R.sqrt(one - scalar(beta, x) ** steps) / (one - scalar(alpha, x) ** steps)
        )
        factor = R.where(step > const(0, dtype_of(step)), corrected, rate)
        moved = factor * m / (R.sqrt(v) + scalar(epsilon, x))
        new = x - moved
        results.append([new * scalar(1 - norm_coefficient_post, x), m, v])
    return _in_order(results)


def _blend(cx: Context, old: Expr, new: Expr, share: float) -> Expr:
    kept = old * scalar(share, old)
    return cx.emit(kept + new * scalar(1 - share, old))


@converter("Momentum", domain=DOMAIN, admitted={"mode": ("nesterov", "standard")})
def momentum(
    cx: Context,
    rate: Expr,
    step: Expr,
    *tensors: Expr,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> list[Expr]:
    results = []
    for x, gradient, velocity in _groups(tensors, 3):
        g = cx.emit(_with_norm(gradient, x, norm_coefficient))
        later = step > const(0, dtype_of(step))
        share = R.where(later, scalar(beta, x), scalar(1, x))
        v = cx.emit(velocity * scalar(alpha, x) + share * g)
        moved = g + v * scalar(alpha, x) if mode == "nesterov" else v
        results.append([x - rate * moved, v])
    return _in_order(results)


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
