"""GroupQueryAttention of ONNX Runtime: attention behind caches whose rows differ in length."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Size, dtype_of, product, reshaped, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple, whole
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops.attention import biased, rotary_embedding, step_by_step
from relaxpy.plugins.onnx.registry import Value, converter

_HEADS_FIRST = (0, 2, 1, 3)
_SINK_FIRST = (0, 0, 1, 0, 0, 0, 0, 0)


#: Attributes that must have their defaults: cache layouts, quantised caches, other results.
_ADMITTED = {
    "causal": (1,),
    "k_quant_type": ("NONE",),
    "kv_cache_bit_width": (0,),
    "qk_output": (0,),
    "sliding_window_cache": (0,),
    "v_quant_type": ("NONE",),
}
_NORMS = ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")


@converter("GroupQueryAttention", domain="com.microsoft", ignored=_NORMS, admitted=_ADMITTED)
def group_query_attention(
    cx: Context,
    query: Expr,
    key: Expr | None,
    value: Expr | None,
    past_key: Expr | None,
    past_value: Expr | None,
    seqlens_k: Expr,
    total_sequence_length: Value,
    cos_cache: Expr | None = None,
    sin_cache: Expr | None = None,
    position_ids: Expr | None = None,
    attention_bias: Expr | None = None,
    head_sink: Expr | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    scale: float = 0.0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
) -> list[Expr]:
    """Row b has seqlens_k[b] + 1 positions; the new ones are the last of them.

    A sink takes part of the attention of a head: its score is `head_sink`, or 0 if
    `smooth_softmax`, and its value 0.
    """
    batch, length, _ = shape_of(query, 3)
    if key is None or value is None:
        query, key, value = _apart(cx, query, num_heads, kv_num_heads)
    width = simple(shape_of(query)[2] // num_heads)
    total = cx.size_in(total_sequence_length)
    before = cx.emit(_lengths_before(cx, seqlens_k, length, total), "before")
    places = position_ids
    if places is None:
        steps = R.expand_dims(R.arange(0, length, 1, "int64"), [0])
        places = R.add(steps, R.expand_dims(before, [1]))
    places = cx.emit(places, "positions")
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise UnsupportedError("do_rotary needs cos_cache and sin_cache")
        half = shape_of(cos_cache)[1]
        query, key = (
            cx.emit(
                rotary_embedding(
                    *(cx, x, cos_cache, sin_cache, places),
                    interleaved=rotary_interleaved,
                    num_heads=heads,
                    rotary_embedding_dim=whole(simple(half * 2)),
                )
            )
            for x, heads in ((query, num_heads), (key, kv_num_heads))
        )
    old: Size = 0 if past_key is None else shape_of(past_key)[2]
    kept = _larger(old, total)
    caches = [
        _behind(cx, cx.emit(reshaped(x, (batch, length, kv_num_heads, width))), past, before, kept)
        for x, past in ((key, past_key), (value, past_value))
    ]
    q = cx.emit(reshaped(query, (batch, length, num_heads, width)))
    k, v = (cx.emit(R.permute_dims(cache, _HEADS_FIRST)) for cache in caches)
    column = cx.emit(
        R.add(
            reshaped(R.arange(0, length, 1, "int64"), (1, 1, length, 1)),
            reshaped(before, (batch, 1, 1, 1)),
        )
    )
    row = R.arange(0, kept, 1, "int64")
    allowed = R.less_equal(row, column)
    if local_window_size > 0:
        first = R.subtract(column, const(local_window_size, "int64"))
        allowed = R.logical_and(allowed, R.greater(row, first))
    dtype = dtype_of(query)
    bias = biased(cx, attention_bias, cx.emit(allowed, "allowed"), dtype)
    if head_sink is not None or smooth_softmax > 0:
        k, v = (cx.emit(R.nn.pad(x, _SINK_FIRST)) for x in (k, v))
        assert bias is not None
        full = (batch, num_heads, length)
        sinks = R.zeros((1, 1, 1, 1), dtype)
        if head_sink is not None:
            sinks = reshaped(head_sink, (1, num_heads, 1, 1))
        parts = R.broadcast_to(sinks, (*full, 1)), R.broadcast_to(bias, (*full, kept))
        bias = cx.emit(R.concat(parts, 3), "bias")
    factor = scale or 1 / math.sqrt(whole(width))
    if softcap:
        y, _ = step_by_step(cx, (q, k, v), bias, factor, softcap, dtype, 0)
    else:
        y = cx.emit(R.nn.attention(q, k, v, bias, factor))
    return [cx.emit(reshaped(y, (batch, length, product(shape_of(y)[2:])))), *caches]


def _apart(cx: Context, packed: Expr, heads: int, shared: int) -> tuple[Expr, Expr, Expr]:
    """Queries, keys and values, packed one after the other along the last axis."""
    width = simple(shape_of(packed)[2] // (heads + 2 * shared))
    ends = [simple(width * count) for count in (heads, heads + shared, heads + 2 * shared)]
    begins = [0, *ends[:-1]]
    parts = (
        cx.emit(R.strided_slice(packed, [2], [begin], [end]))
        for begin, end in zip(begins, ends, strict=True)
    )
    query, key, value = parts
    return query, key, value


def _lengths_before(cx: Context, last: Expr, length: Size, total: Size) -> Expr:
    """How many positions of each row are in the cache; none if all rows begin here."""

    def lengths_before(lengths: Tensor) -> Tensor:
        new, whole_length = as_sizes([length, total])

        def element(b: PrimExpr) -> PrimExpr:
            before = ops.cast_to(lengths(b), "int64") + 1 - new
            zero = ops.const(0, "int64")
            return if_then_else(whole_length <= new, zero, ops.maximum(before, zero))

        return computed(lengths.shape, element, "lengths_before")

    return cx.te(lengths_before, reshaped(last, (product(shape_of(last)),)))


def _larger(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return simple(ops.maximum(*as_sizes([a, b])))


def _behind(cx: Context, new: Expr, past: Expr | None, before: Expr, kept: Size) -> Expr:
    """The cache with the new positions behind the old ones of each row, and 0 behind these."""

    def cache(fresh: Tensor, lengths: Tensor, *old: Tensor) -> Tensor:
        batch, length, heads, width = fresh.shape
        (positions,) = as_sizes([kept])

        def element(b: PrimExpr, h: PrimExpr, n: PrimExpr, d: PrimExpr) -> PrimExpr:
            at = n - lengths(b)
            rest: Any = ops.const(0, fresh.dtype)
            if old:
                kept_here = ops.all_of(n < old[0].shape[2], n < lengths(b))
                rest = if_then_else(kept_here, old[0](b, h, n, d), rest)
            inside = ops.all_of(at >= 0, at < length)
            return if_then_else(inside, fresh(b, at, h, d), rest)

        return computed([batch, heads, positions, width], element, "cache")

    operands = [new, before, *([] if past is None else [past])]
    return cx.te(cache, *operands, name="cache")
