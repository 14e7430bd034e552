"""Attention."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.frontend.shared.tensors import dtype_of, rank_of, reshaped, scalar, shape_of
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R


@converter("scaled_dot_product_attention")
def attention(
    cx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    rank = rank_of(query)
    if enable_gqa:
        key, value = (_repeated(cx, query, item) for item in (key, value))
    size = shape_of(query)[-1]
    if scale is None and isinstance(size, int):
        scale = 1 / math.sqrt(size)
    factor: Any = scalar(scale, query) if scale is not None else None
    if factor is None:
        factor = R.rsqrt(cx.tensor(size, dtype_of(query)))
    last = [*range(rank - 2), rank - 1, rank - 2]
    scores = R.matmul(R.multiply(query, factor), R.permute_dims(key, last))
    if causal:
        mask = _causal(cx, query, key)
    if mask is None:
        return R.matmul(R.nn.softmax(scores), value)
    if dtype_of(mask) != "bool":
        return R.matmul(R.nn.softmax(R.add(scores, mask)), value)
    hidden = R.where(mask, scores, scalar(-math.inf, query))
    weights = R.nn.softmax(hidden)
    if not causal:
        # a row without any key gives zeros
        seen = R.max(R.astype(mask, "int8"), [rank_of(mask) - 1], True)
        none = R.equal(seen, const(0, "int8"))
        weights = R.where(none, scalar(0.0, query), weights)
    return R.matmul(weights, value)


def _causal(cx: Context, query: Expr, key: Expr) -> Expr:
    rows, columns = shape_of(query)[-2], shape_of(key)[-2]
    at = R.expand_dims(R.arange(0, rows, 1, "int64"), 1)
    return R.less_equal(R.expand_dims(R.arange(0, columns, 1, "int64"), 0), at)


def _repeated(cx: Context, query: Expr, x: Expr) -> Expr:
    """Keys or values with each head as often as queries share it."""
    heads, own = shape_of(query)[-3], shape_of(x)[-3]
    if not isinstance(heads, int) or not isinstance(own, int) or heads == own:
        return x
    *outer, _, length, size = shape_of(x)
    wide = R.broadcast_to(
        R.expand_dims(x, rank_of(x) - 2), (*outer, own, heads // own, length, size)
    )
    return reshaped(wide, [*outer, heads, length, size])
