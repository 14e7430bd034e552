"""Mixtures of experts of ONNX Runtime: for each token the sum of what a few layers return."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.tir import reduce
from relaxpy.plugins.importing.tensors import as_size, product, reshaped, scalar, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops.microsoft import DOMAIN
from relaxpy.plugins.onnx.registry import converter

_ACTIVATIONS = {
    "relu": R.nn.relu,
    "gelu": R.nn.gelu_tanh,
    "silu": R.nn.silu,
    "identity": lambda x: x,
}


@converter(
    "MoE", domain=DOMAIN, admitted={"use_sparse_mixer": (0,), "swiglu_limit_after_activation": (0,)}
)
def mixture_of_experts(
    cx: Context,
    x: Expr,
    router_probs: Expr,
    fc1: Expr,
    fc1_bias: Expr | None,
    fc2: Expr,
    fc2_bias: Expr | None = None,
    fc3: Expr | None = None,
    fc3_bias: Expr | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf,
) -> Expr:
    """Route each token to its top-`k` experts."""
    shape = shape_of(x)
    tokens = simple(product(shape[:-1]))
    rows = cx.emit(reshaped(x, [tokens, shape[-1]]))
    weights, experts = _chosen(cx, router_probs, k, normalised=bool(normalize_routing_weights))
    group = cx.emit(reshaped(experts, [simple(tokens * k)]))
    hidden = _products(cx, rows, fc1, fc1_bias, group, k)
    if activation_type == "swiglu":
        if fc3 is not None:
            linear = _products(cx, rows, fc3, fc3_bias, group, k)
        elif swiglu_fusion:
            hidden, linear = _halves(cx, hidden, interleaved=swiglu_fusion == 1)
        else:
            raise UnsupportedError("swiglu needs fc3_experts_weights or swiglu_fusion")
        if math.isfinite(swiglu_limit):
            hidden = R.minimum(hidden, scalar(swiglu_limit, hidden))
            linear = R.clip(linear, -swiglu_limit, swiglu_limit)
        hidden = cx.emit(hidden)
        gate = R.sigmoid(R.multiply(hidden, scalar(activation_alpha, hidden)))
        shifted = R.add(linear, scalar(activation_beta, linear))
        hidden = R.multiply(R.multiply(hidden, gate), shifted)
    elif activation_type in _ACTIVATIONS and fc3 is None:
        hidden = _ACTIVATIONS[activation_type](hidden)
    else:
        raise UnsupportedError(f"the activation {activation_type!r} is not imported")
    y = _products(cx, cx.emit(hidden), fc2, fc2_bias, group, 1)
    y = reshaped(y, [tokens, k, shape_of(fc2)[1]])
    return reshaped(R.sum(R.multiply(y, R.expand_dims(weights, 2)), axis=[1]), shape)


def _chosen(cx: Context, probs: Expr, k: int, *, normalised: bool) -> tuple[Expr, Expr]:
    """The weights and the numbers of the experts of each token."""
    best = cx.builder.emit(R.topk(R.nn.softmax(probs, -1), k, -1, "both", True, "int64"))
    weights, experts = (cx.emit(TupleGetItem(best, n)) for n in (0, 1))
    if normalised:
        weights = cx.emit(R.divide(weights, R.sum(weights, axis=[-1], keepdims=True)))
    return weights, experts


def _products(
    cx: Context, rows: Expr, matrices: Expr, bias: Expr | None, group: Expr, repeats: int
) -> Expr:
    """The product of each row with the matrix of its group; each row stands for several."""
    (count,) = shape_of(group)
    _, columns, inner = shape_of(matrices)

    def grouped(x: Tensor, matrices: Tensor, group: Tensor) -> Tensor:
        k = reduce_axis((0, as_size(inner)), "k")

        def element(row: Any, column: Any) -> Any:
            return reduce.sum(x(row // repeats, k) * matrices(group(row), column, k), axis=k)

        return compute((as_size(count), as_size(columns)), element)

    found = cx.te(grouped, rows, matrices, group, name="expert_products")
    return found if bias is None else cx.emit(R.add(found, R.take(bias, group, 0)))


def _halves(cx: Context, x: Expr, *, interleaved: bool) -> tuple[Expr, Expr]:
    """Gates and what they are for: the even and the odd columns, or one after the other."""
    width = shape_of(x)[1]
    half = simple(width // 2)
    bounds = ((0, width), (1, width)) if interleaved else ((0, half), (half, width))
    step = 2 if interleaved else 1
    first, second = (R.strided_slice(x, [1], [a], [b], [step]) for a, b in bounds)
    return first, second
