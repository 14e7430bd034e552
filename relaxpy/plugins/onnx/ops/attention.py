"""Attention, rotary embeddings, caches of keys and values.

GroupQueryAttention of ONNX Runtime reads caches whose rows differ in length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    Size,
    as_dtype,
    dtype_of,
    normal_axis,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple, whole
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code

_HEADS_FIRST = (0, 2, 1, 3)


def _heads(cx: Context, x: Expr, count: int | None) -> Expr:
    """The tensor with an axis of heads behind that of positions."""
    if rank_of(x) == 4:
        return cx.emit(R.permute_dims(x, _HEADS_FIRST))
    if not count:
        raise UnsupportedError("operands of rank 3 need q_num_heads and kv_num_heads")
    batch, length, width = shape_of(x, 3)
    return cx.emit(reshaped(x, (batch, length, count, simple(width // count))))


def _state(cx: Context, x: Expr, count: int | None, past: Expr | None) -> tuple[Expr, Expr]:
    """Keys or values behind those of a cache: with heads behind positions, and before them."""
    if rank_of(x) == 3:
        behind = _heads(cx, x, count)
        x = cx.emit(R.permute_dims(behind, _HEADS_FIRST))
        if past is None:
            return behind, x
    before = x if past is None else cx.emit(R.concat([past, x], 2))
    return cx.emit(R.permute_dims(before, _HEADS_FIRST)), before


def _equal(a: Size, b: Size) -> bool:
    difference = simple(a - b)
    return isinstance(difference, int) and difference == 0


def _mask(cx: Context, mask: Expr, full: Sequence[Size]) -> Expr:
    """The mask padded to the number of keys; the padding is masked."""
    sizes = shape_of(mask)
    if not 1 <= len(sizes) <= 4:
        raise UnsupportedError(f"attn_mask has rank {len(sizes)}, expected 1 to 4")
    shape = list(sizes)
    last = sizes[-1]
    missing = simple(full[-1] - last)
    if isinstance(missing, int) and missing > 0:
        pads = [*[0] * (2 * len(sizes) - 1), missing]
        if dtype_of(mask) == "bool":
            mask = R.astype(R.nn.pad(R.astype(mask, "int8"), pads), "bool")
        else:
            mask = R.nn.pad(mask, pads, "constant", -math.inf)
        shape[-1] = full[-1]
        return cx.emit(mask)
    for k in range(1, len(sizes) + 1):
        if sizes[-k] != 1 and not _equal(sizes[-k], full[-k]):
            shape[-k] = full[-k]
    if all(a is b for a, b in zip(shape, sizes, strict=True)):
        return mask
    return cx.match(mask, shape, dtype_of(mask), "mask")


def _number(cx: Context, size: Size) -> Expr:
    """A size as a tensor of rank 0."""
    if isinstance(size, int):
        return const(size, "int64")
    return cx.tensor(cx.contents([size], [], "int64"))


def _allowed(
    cx: Context,
    full: Sequence[Size],
    past: Size,
    valid: Expr | None,
    causal: bool,
    left: int,
    right: int,
) -> Expr | None:
    """The mask of keys that each query may attend to by position; None if all."""
    queries, keys = full[2:]
    terms: list[Expr] = []
    row = R.arange(0, keys, 1, "int64")
    if causal or left >= 0 or right >= 0:
        column = reshaped(R.arange(0, queries, 1, "int64"), (queries, 1))
        if valid is not None:
            offset = R.reshape(valid, (-1, 1, 1, 1)) - _number(cx, queries)
            column = column + offset
        elif not isinstance(past, int) or past:
            column = column + _number(cx, past)
        column = cx.emit(column, "positions")
        if causal:
            terms.append(row <= column)
        if left >= 0:
            terms.append(column - const(left, "int64") <= row)
        if right >= 0:
            terms.append(row <= column + const(right, "int64"))
    if valid is not None:
        terms.append(row < R.reshape(valid, (-1, 1, 1, 1)))
    result: Expr | None = None
    for term in terms:
        result = term if result is None else R.logical_and(result, term)
    return None if result is None else cx.emit(result, "allowed")


def biased(cx: Context, mask: Expr | None, allowed: Expr | None, dtype: str) -> Expr | None:
    """The bias added to the scores: minus infinity at masked keys."""
    zero, never = const(0, dtype), const(-math.inf, dtype)
    bias: Expr | None = None
    if mask is not None and dtype_of(mask) == "bool":
        allowed = mask if allowed is None else R.logical_and(mask, allowed)
    elif mask is not None:
        bias = as_dtype(mask, dtype)
    if allowed is not None:
        bias = R.where(allowed, zero if bias is None else bias, never)
    if bias is None:
        return None
    bias = cx.emit(bias)
    missing = 4 - rank_of(bias)
    return cx.emit(R.expand_dims(bias, list(range(missing))) if missing else bias, "bias")


@converter("Attention")
def attention(
    cx: Context,
    q: Expr,
    k: Expr,
    v: Expr,
    attn_mask: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    nonpad_kv_seqlen: Expr | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> list[Expr]:
    dtype, flat = dtype_of(q), rank_of(q) == 3
    query = _heads(cx, q, q_num_heads)
    key, present_key = _state(cx, k, kv_num_heads, past_key)
    value, present_value = _state(cx, v, kv_num_heads, past_value)
    batch, length, heads, width = shape_of(query, 4)
    full = [batch, heads, length, shape_of(key)[1]]
    if scale is None and not isinstance(width, int):
        raise UnsupportedError("the size of heads is symbolic and there is no scale")
    factor = 1 / math.sqrt(whole(width)) if scale is None else scale
    mask = None if attn_mask is None else _mask(cx, attn_mask, full)
    past = 0 if past_key is None else shape_of(past_key)[2]
    valid = None if past_key is not None else nonpad_kv_seqlen
    windows = left_window_size, right_window_size
    precision = dtype if softmax_precision is None else dtype_of_code(softmax_precision)
    causal: str | None = None
    if is_causal and mask is None and valid is None and max(windows) < 0:
        if not isinstance(past, int) or past:
            causal = "BottomRight" if _equal(shape_of(k)[-2], length) else None
        else:
            causal = "TopLeft"
    allowed = None
    if causal is None:
        allowed = _allowed(cx, full, past, valid, bool(is_causal), *windows)
    asked = len(cx.node.outputs) > 3 and bool(cx.node.outputs[3])
    if asked or softcap or precision != dtype:
        if causal is not None:
            allowed = _allowed(cx, full, past, valid, bool(is_causal), *windows)
        bias = biased(cx, mask, allowed, dtype)
        y, shown = step_by_step(
            cx, (query, key, value), bias, factor, softcap, precision, qk_matmul_output_mode
        )
    else:
        bias, shown = biased(cx, mask, allowed, dtype), query
        y = cx.emit(R.nn.attention(query, key, value, bias, factor, causal))
        if bias is not None:
            nothing = R.permute_dims(_nothing(cx, bias), _HEADS_FIRST)
            y = cx.emit(R.where(nothing, scalar(0, q), y))
    if flat:
        result = reshaped(y, (batch, length, product(shape_of(y)[2:])))
    else:
        result = R.permute_dims(y, _HEADS_FIRST)
    return [cx.emit(result), present_key, present_value, shown]


def _nothing(cx: Context, bias: Expr) -> Expr:
    """The mask of queries that attend to no key; their results are 0."""
    best = R.max(bias, [3], keepdims=True)
    return cx.emit(R.equal(best, const(-math.inf, dtype_of(bias))))


def step_by_step(
    cx: Context,
    operands: tuple[Expr, Expr, Expr],
    bias: Expr | None,
    factor: float,
    softcap: float,
    precision: str,
    mode: int,
) -> tuple[Expr, Expr]:
    """Attention by its single steps, and the result of the one that `mode` asks for."""
    query, key, value = (cx.emit(R.permute_dims(part, _HEADS_FIRST)) for part in operands)
    batch, heads, length, width = shape_of(query, 4)
    shared, total = shape_of(key)[1:3]
    if not isinstance(heads, int) or not isinstance(shared, int) or heads % shared:
        raise UnsupportedError(f"{heads} heads of queries for {shared} heads of keys")
    root = scalar(math.sqrt(factor), query)
    # Heads of queries that share one of keys are rows of one matrix.
    rows = simple(length * (heads // shared))
    matrix = reshaped(query * root, (batch, shared, rows, width))
    scores = R.matmul(matrix, R.permute_dims(key, (0, 1, 3, 2)) * root)
    scores = cx.emit(reshaped(scores, (batch, heads, length, total)), "scores")
    steps = [scores]
    if softcap:
        limit = scalar(softcap, query)
        scores = cx.emit(R.tanh(scores / limit) * limit, "capped")
    steps.append(scores)
    if bias is not None:
        scores = cx.emit(scores + bias, "biased")
    steps.append(scores)
    dtype = dtype_of(query)
    if precision != dtype:
        scores = R.astype(scores, precision)
    weights = cx.emit(R.nn.softmax(scores, -1), "weights")
    if precision != dtype:
        weights = cx.emit(R.astype(weights, dtype))
    if bias is not None:
        weights = cx.emit(R.where(_nothing(cx, bias), scalar(0, query), weights))
    steps.append(weights)
    y = R.matmul(reshaped(weights, (batch, shared, rows, total)), value)
    y = cx.emit(reshaped(y, (batch, heads, length, shape_of(value)[3])))
    return cx.emit(R.permute_dims(y, _HEADS_FIRST)), steps[mode]


@converter("RotaryEmbedding")
def rotary_embedding(
    cx: Context,
    x: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    position_ids: Expr | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    shape = shape_of(x)
    if len(shape) not in (3, 4):
        raise UnsupportedError(f"expected a tensor of rank 3 or 4, found rank {len(shape)}")
    if len(shape) == 3:
        if not num_heads:
            raise UnsupportedError("an operand of rank 3 needs num_heads")
        batch, length, hidden = shape
        x = reshaped(x, (batch, length, num_heads, simple(hidden // num_heads)))
    width = shape_of(x)[3]
    heads_at = 2 if len(shape) == 3 else 1
    turned = rotary_embedding_dim or width
    if not isinstance(turned, int):
        raise UnsupportedError("the size of heads is symbolic")
    tables = []
    for cache in (cos_cache, sin_cache):
        table = cache if position_ids is None else R.take(cache, position_ids, 0)
        tables.append(cx.emit(R.expand_dims(table, [heads_at])))
    cos, sin = tables
    x = cx.emit(x)
    half = turned // 2
    first, second = (
        (
            R.strided_slice(x, [3], [k], [turned], [2])
            if interleaved
            else R.strided_slice(x, [3], [k * half], [(k + 1) * half])
        )
        for k in (0, 1)
    )
    first, second = cx.emit(first), cx.emit(second)
    real = cos * first - sin * second
    imaginary = sin * first + cos * second
    if interleaved:
        sizes = [*shape_of(x)[:3], turned]
        result = reshaped(R.stack([real, imaginary], 4), tuple(sizes))
    else:
        result = R.concat([real, imaginary], 3)
    if isinstance(width, int) and turned < width:
        result = R.concat([result, R.strided_slice(x, [3], [turned], [width])], 3)
    return reshaped(result, tuple(shape)) if len(shape) == 3 else result


@converter("TensorScatter", admitted={"mode": ("linear", "circular")}, strings=True)
def tensor_scatter(
    cx: Context,
    past_cache: Expr,
    update: Expr,
    write_indices: Expr | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Expr:
    at = normal_axis(axis, rank_of(past_cache))
    if write_indices is not None:
        last = simple(shape_of(past_cache)[at] - shape_of(update)[at])
        write_indices = cx.within(
            write_indices, "write_indices", 0, None if mode == "circular" else last
        )
    return written(cx, past_cache, update, write_indices, at, circular=mode == "circular")


def written(
    cx: Context,
    cache: Expr,
    update: Expr,
    starts: Expr | None,
    axis: int,
    *,
    circular: bool = False,
) -> Expr:
    """The cache with the update along an axis, from a start of its own for each batch."""
    operands = [cache, update, *([] if starts is None else [starts])]
    return cx.te(lambda *t: _written(axis, circular, *t), *operands, name="tensor_scatter")


def _written(
    axis: int, circular: bool, cache: Tensor, update: Tensor, starts: Any = None
) -> Tensor:
    size, length = cache.shape[axis], update.shape[axis]

    def element(*index: PrimExpr) -> PrimExpr:
        start = ops.const(0, "int64") if starts is None else starts(index[0])
        position = index[axis] - start
        if circular:
            position = position % size
        source = [*index]
        source[axis] = position
        inside = ops.all_of(position >= 0, position < length)
        return if_then_else(inside, update(*source), cache(*index))

    return computed(cache.shape, element, "written")


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
        places = steps + R.expand_dims(before, [1])
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
        reshaped(R.arange(0, length, 1, "int64"), (1, 1, length, 1))
        + reshaped(before, (batch, 1, 1, 1))
    )
    row = R.arange(0, kept, 1, "int64")
    allowed = row <= column
    if local_window_size > 0:
        first = column - const(local_window_size, "int64")
        allowed = R.logical_and(allowed, row > first)
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
    """The cache with the new positions after the old ones of each row, and 0 after these."""

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
