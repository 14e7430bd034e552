"""Fused operators of the domain com.microsoft, which ONNX Runtime's optimiser writes.

And those of decoders, gates, matrices and mixtures of experts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import Unpack

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.tir import reduce
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import as_size, product, reshaped, scalar, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import FilterAttributes, simple, whole
from relaxpy.plugins.onnx.context import MICROSOFT as DOMAIN, Context, Value, converter, find
from relaxpy.plugins.onnx.ops.attention import rotary_embedding, written
from relaxpy.plugins.onnx.ops.conv import conv, conv_transpose, gemm
from relaxpy.plugins.onnx.ops.creation import trilu as triangle, unique
from relaxpy.plugins.onnx.ops.movement import unsqueeze


@converter("Gelu", domain=DOMAIN)
def gelu(cx: Context, x: Expr) -> Expr:
    return R.nn.gelu(x)


@converter("BiasGelu", domain=DOMAIN)
def bias_gelu(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.nn.gelu(a + b)


@converter("FastGelu", domain=DOMAIN)
def fast_gelu(cx: Context, x: Expr, bias: Expr | None = None) -> Expr:
    return R.nn.gelu_tanh(x if bias is None else x + bias)


@converter("QuickGelu", domain=DOMAIN)
def quick_gelu(cx: Context, x: Expr, *, alpha: float = 1.702) -> Expr:
    return x * R.sigmoid(x * tensors.scalar(alpha, x))


@converter("Trilu", domain=DOMAIN)
def trilu(cx: Context, x: Expr, k: Value = None, *, upper: int = 1) -> Expr:
    return triangle(cx, x, k, upper=upper)


@converter("ExpandDims", domain=DOMAIN)
def expand_dims(cx: Context, x: Expr, axis: Value) -> Expr:
    if cx.array(axis) is not None:
        return R.expand_dims(x, cx.numbers(axis, "axis"))
    return unsqueeze(cx, x, cx.emit(R.reshape(cx.tensor(axis), (1,))))


@converter("CDist", domain=DOMAIN, admitted={"metric": ("euclidean", "sqeuclidean")})
def cdist(cx: Context, a: Expr, b: Expr, *, metric: str = "sqeuclidean") -> Expr:
    """The distances of all rows of `a` from all rows of `b`."""
    difference = cx.emit(R.expand_dims(a, 1) - R.expand_dims(b, 0))
    squares = R.sum(difference * difference, 2)
    return squares if metric == "sqeuclidean" else R.sqrt(squares)


@converter("NGramRepeatBlock", domain=DOMAIN)
def ngram_repeat_block(cx: Context, ids: Expr, scores: Expr, *, ngram_size: int) -> Expr:
    """The scores, -inf for each token that would repeat `ngram_size` tokens in order."""
    batch, length = tensors.shape_of(ids, 2)
    count = simple(length - (ngram_size - 1))
    if isinstance(count, int) and count <= 0:
        return scores

    def tokens(first: tensors.Size, size: tensors.Size) -> Expr:
        return cx.emit(R.strided_slice(ids, [1], [first], [simple(first + size)]))

    repeats = cx.emit(R.ones((batch, count), "bool"))
    for k in range(ngram_size - 1):
        same = R.equal(tokens(k, count), tokens(simple(count + k), 1))
        repeats = cx.emit(R.logical_and(repeats, same))
    none = R.zeros(tuple(map(tensors.as_size, tensors.shape_of(scores, 2))), "int8")
    marks = R.astype(repeats, "int8")
    blocked = R.scatter_elements(none, tokens(ngram_size - 1, count), marks, 1, "max")
    return R.where(R.astype(blocked, "bool"), tensors.scalar(-math.inf, scores), scores)


@converter("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose_with_pads(
    cx: Context,
    x: Expr,
    w: Expr,
    pads: Value = None,
    b: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    return conv_transpose(
        cx,
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=None if pads is None else cx.sizes(pads, "pad"),
        strides=strides,
    )


@converter("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(
    cx: Context,
    a: Expr,
    b: Expr,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Expr:
    left = _transposed(a, transA, transBatchA)
    result = R.matmul(left, _transposed(b, transB, transBatchB))
    return result if alpha == 1.0 else result * tensors.scalar(alpha, a)


def _transposed(x: Expr, matrices: int = 1, batch: int = 0) -> Expr:
    """`x` with its last two axes exchanged, after its first axis has moved after the batch."""
    rank = tensors.rank_of(x)
    if rank < 2 or not (matrices or batch):
        return x
    axes = [*range(1, rank - 1), 0, rank - 1] if batch else [*range(rank)]
    if matrices:
        axes[-2:] = axes[-1], axes[-2]
    return R.permute_dims(x, axes)


@converter("FusedGemm", domain=DOMAIN)
def fused_gemm(
    cx: Context,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    y = cx.emit(gemm(cx, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB))
    parameters = (activation_alpha, activation_beta, activation_gamma)
    return _activated(cx, y, activation, [x for x in parameters if x is not None])


@converter("FusedConv", domain=DOMAIN)
def fused_conv(
    cx: Context,
    x: Expr,
    w: Expr,
    b: Expr | None = None,
    z: Expr | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] | None = None,
    **filters: Unpack[FilterAttributes],
) -> Expr:
    result = conv(cx, x, w, b, **filters)
    y = result if z is None else result + z
    return _activated(cx, cx.emit(y), activation, list(activation_params or []))


def _activated(cx: Context, y: Expr, activation: str, parameters: Sequence[float]) -> Expr:
    """An operator of one operand on `y`; `parameters` are its attributes in ONNX's order."""
    if not activation:
        return y
    if activation == "Clip":
        low, high = parameters
        return R.clip(y, low, high)
    entry = find("", activation, 13)
    if entry is None or len(parameters) > len(entry.attributes):
        raise UnsupportedError(f"the activation {activation!r} is not imported")
    result: Expr = entry.function(cx, y, **dict(zip(entry.attributes, parameters, strict=False)))
    return result


# -- Normalisation ----------------------------------------------------------------------------


def _rms(cx: Context, x: Expr, scale: Expr, epsilon: float) -> Expr:
    return R.nn.rms_norm(x, scale, [-1], epsilon)


@converter("SimplifiedLayerNormalization", domain=DOMAIN)
@converter("SimplifiedLayerNormalization", ignored=["stash_type"])
def simplified_layer_normalization(
    cx: Context, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    if axis not in (-1, tensors.rank_of(x) - 1):
        raise UnsupportedError(f"axis {axis} is not the last one")
    return _rms(cx, x, scale, epsilon)


@converter("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(
    cx: Context,
    x: Expr,
    skip: Expr,
    gamma: Expr,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[Expr | None]:
    total = x + skip
    total = cx.emit(total if bias is None else total + bias)
    return [_rms(cx, total, gamma, epsilon), None, None, total]


def _layer(cx: Context, x: Expr, gamma: Expr, beta: Expr | None, epsilon: float) -> Expr:
    offset = R.zeros_like(gamma) if beta is None else beta
    return R.nn.layer_norm(x, gamma, offset, [-1], epsilon)


@converter("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    cx: Context,
    x: Expr,
    skip: Expr,
    gamma: Expr,
    beta: Expr | None = None,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[Expr]:
    total = x + skip
    total = cx.emit(total if bias is None else total + bias)
    variance = R.variance(total, [-1], True)
    deviation = R.rsqrt(variance + tensors.scalar(epsilon, variance))
    mean = R.mean(total, [-1], True)
    return [_layer(cx, total, gamma, beta, epsilon), mean, deviation, total]


@converter("EmbedLayerNormalization", domain=DOMAIN, ignored=["mask_index_type"])
def embed_layer_normalization(
    cx: Context,
    input_ids: Expr,
    segment_ids: Expr | None,
    word_embedding: Expr,
    position_embedding: Expr,
    segment_embedding: Expr | None = None,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    mask: Expr | None = None,
    position_ids: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[Expr]:
    if gamma is None:
        raise UnsupportedError("operand gamma is missing")
    batch, length = tensors.shape_of(input_ids, 2)
    total = R.take(word_embedding, input_ids, axis=0)
    if position_ids is None:
        positions = R.strided_slice(position_embedding, [0], [0], [length])
    else:
        positions = R.take(position_embedding, position_ids, axis=0)
    total = total + positions
    if segment_ids is not None and segment_embedding is not None:
        total = total + R.take(segment_embedding, segment_ids, axis=0)
    total = cx.emit(total)
    count = R.zeros((batch,), "int32") if mask is None else R.sum(R.astype(mask, "int32"), axis=[1])
    return [_layer(cx, total, gamma, beta, epsilon), count, total]


# -- Attention --------------------------------------------------------------------------------


def heads_apart(cx: Context, x: Expr, heads: int) -> Expr:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, width = tensors.shape_of(x, 3)
    if not isinstance(width, int) or width % heads:
        raise UnsupportedError(f"a width of {width} is not a multiple of {heads} heads")
    return R.permute_dims(tensors.reshaped(x, (batch, length, heads, width // heads)), [0, 2, 1, 3])


def _seen(mask: Expr, batch: tensors.Size, keys: tensors.Size) -> Expr:
    """The boolean mask of keys that an ONNX mask admits.

    One of rank 1 has the number of keys of each sequence, or where they end and then where they
    begin.
    """
    axes = {1: [1], 2: [1, 2], 3: [1], 4: []}.get(tensors.rank_of(mask))
    if axes is None:
        raise UnsupportedError(f"a mask of rank {tensors.rank_of(mask)} is not imported")
    if tensors.rank_of(mask) == 1:
        count = tensors.shape_of(mask)[0]
        columns = R.arange(0, keys, 1, "int64")
        bounds = R.expand_dims(R.astype(mask, "int64"), axes)
        inside = columns < R.strided_slice(bounds, [0], [0], [batch])
        if prove_equal(tensors.as_size(count), tensors.as_size(batch * 2)):
            starts = R.strided_slice(bounds, [0], [batch], [batch * 2])
            inside = R.logical_and(inside, columns >= starts)
        elif not prove_equal(tensors.as_size(count), tensors.as_size(batch)):
            raise UnsupportedError(f"a mask of {count} numbers for {batch} sequences")
        return R.expand_dims(inside, [1, 2])
    seen = R.astype(mask, "bool")
    return R.expand_dims(seen, axes) if axes else seen


def attended(
    cx: Context,
    q: Expr,
    k: Expr,
    v: Expr,
    scale: float,
    bias: Expr | None,
    mask: Expr | None,
    filter_value: float,
    *,
    causal: bool,
) -> Expr:
    """Attention of (batch, heads, length, size) in the layout (batch, length, heads * size)."""
    q, k, v = cx.emit(q), cx.emit(k), cx.emit(v)
    batch, heads, length, size = tensors.shape_of(q, 4)
    width = tensors.shape_of(v)[3]
    scores = R.matmul(q, _transposed(k))
    scores = cx.emit(scores * tensors.scalar(scale or 1 / math.sqrt(float(size)), q))  # type: ignore[arg-type]
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        seen = _seen(mask, batch, tensors.shape_of(k)[2])
        scores = R.where(seen, scores, scores + tensors.scalar(filter_value, q))
    if causal:
        every = tensors.shape_of(k)[2]
        rows = R.arange(every - length, every, 1, "int64")
        columns = R.arange(0, every, 1, "int64")
        seen = R.expand_dims(rows, 1) >= columns
        scores = R.where(seen, scores, tensors.scalar(filter_value, q))
    found = R.permute_dims(R.matmul(R.nn.softmax(scores, -1), v), [0, 2, 1, 3])
    return tensors.reshaped(found, (batch, length, tensors.product([heads, width])))


#: Attributes of attention that are imported with these values only.
PLAIN = dict.fromkeys(("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"), (0,))


@converter("Attention", domain=DOMAIN, admitted=PLAIN)
def attention(
    cx: Context,
    x: Expr,
    weights: Expr,
    bias: Expr | None = None,
    mask_index: Expr | None = None,
    past: Expr | None = None,
    attention_bias: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Expr]:
    every = R.matmul(x, weights)
    every = cx.emit(every if bias is None else every + bias)
    width = tensors.shape_of(every)[2]
    if not isinstance(width, int):
        raise UnsupportedError("the width of the weights is symbolic")
    sizes = list(qkv_hidden_sizes or [width // 3] * 3)
    ends = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    q, k, v = (
        heads_apart(cx, cx.emit(R.strided_slice(every, [2], [a], [b])), num_heads)
        for a, b in itertools.pairwise(ends)
    )
    if past is not None:
        before = [R.squeeze(R.strided_slice(past, [0], [n], [n + 1]), [0]) for n in (0, 1)]
        k, v = (R.concat([old, new], axis=2) for old, new in zip(before, (k, v), strict=True))
    k, v = cx.emit(k), cx.emit(v)
    y = attended(
        cx,
        q,
        k,
        v,
        scale,
        attention_bias,
        mask_index,
        mask_filter_value,
        causal=bool(unidirectional),
    )
    return [y] if tensors.shape_of(k)[3] != tensors.shape_of(v)[3] else [y, R.stack([k, v], axis=0)]


@converter("RotaryEmbedding", domain=DOMAIN, ignored=["scale"])
def rotary(
    cx: Context,
    x: Expr,
    position_ids: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    if is_packed_batching:
        raise UnsupportedError("sequences packed into one are not imported")
    sizes = tensors.shape_of(x)
    if len(sizes) == 3 and not num_heads:
        hidden, half = sizes[2], tensors.shape_of(cos_cache)[1]
        if not isinstance(hidden, int) or not isinstance(half, int):
            raise UnsupportedError("the size of heads is symbolic")
        num_heads = hidden // (2 * half)
    if tensors.rank_of(position_ids) == 1:
        steps = R.arange(0, sizes[-2], 1, tensors.dtype_of(position_ids))
        position_ids = R.expand_dims(steps + position_ids, [0])
    return rotary_embedding(
        cx,
        x,
        cos_cache,
        sin_cache,
        cx.emit(position_ids),
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )


def with_biases(cx: Context, parts: Sequence[Expr], bias: Expr | None) -> Sequence[Expr]:
    """Projections plus their parts of the bias, one after the other."""
    if bias is None:
        return parts
    begin = 0
    shifted: list[Expr] = []
    for part in parts:
        end = begin + whole(tensors.shape_of(part)[-1])
        shifted.append(cx.emit(part + R.strided_slice(bias, [0], [begin], [end])))
        begin = end
    return shifted


@converter("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    cx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    key_padding_mask: Expr | None = None,
    attention_bias: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Expr]:
    parts = with_biases(cx, [query, key, value], bias)
    q, k, v = (
        x if tensors.rank_of(x) == 4 else cx.emit(heads_apart(cx, x, num_heads)) for x in parts
    )
    if past_key is not None and past_value is not None:
        k = cx.emit(R.concat([past_key, k], axis=2))
        v = cx.emit(R.concat([past_value, v], axis=2))
    y = attended(
        cx,
        q,
        k,
        v,
        scale,
        attention_bias,
        key_padding_mask,
        mask_filter_value,
        causal=bool(unidirectional),
    )
    return [y, k, v]


@converter("Inverse", domain=DOMAIN)
def inverse(cx: Context, x: Expr) -> Expr:
    dtype = tensors.dtype_of(x)
    wide = R.astype(x, "float32") if dtype == "float16" else x
    return tensors.call("linalg_inv_ex", [wide], [(0, tensors.shape_of(x), dtype, False)])


@converter("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b, "int32" if tensors.dtype_of(a) == "int16" else "uint32")


@converter("Unique", domain=DOMAIN)
def unique_in_order(cx: Context, x: Expr) -> list[Expr]:
    values, _, places, counts = unique(cx, x, sorted=0)
    return [values, places, counts]


@converter("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(cx: Context, x: Expr, *, size: int, dim: int = -1, step: int = 1) -> Expr:
    """All slices of a size along an axis, each `step` after the preceding one, in a last axis."""
    rank = tensors.rank_of(x)
    axis = tensors.normal_axis(dim, rank)
    count = simple((tensors.shape_of(x)[axis] - size) // step + 1)
    starts = R.arange(0, count, 1, "int64") * const(step, "int64")
    places = R.expand_dims(starts, 1) + R.arange(0, size, 1, "int64")
    parts = cx.emit(R.take(x, cx.emit(places), axis))
    order = [*range(rank + 1)]
    order.append(order.pop(axis + 1))
    return R.permute_dims(parts, order)


# -- Gates ------------------------------------------------------------------------------------


@converter("ScaledSiLU", domain=DOMAIN)
def scaled_silu(cx: Context, x: Expr, scale: Expr | None = None, *, alpha: float = 1.0) -> Expr:
    factor = tensors.scalar(alpha, x) if scale is None else R.astype(scale, tensors.dtype_of(x))
    return R.nn.silu(x * factor)


@converter("GatedAdd", domain=DOMAIN)
def gated_add(cx: Context, x: Expr, y: Expr, gate: Expr) -> Expr:
    return x + y * gate


@converter("GatedRMSNorm", domain=DOMAIN)
def gated_rms_norm(
    cx: Context,
    x: Expr,
    scale: Expr,
    gate: Expr,
    *,
    activation: str = "silu",
    epsilon: float = 1e-5,
) -> Expr:
    """The normalised groups of the last axis, each as long as `scale`, times the gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise UnsupportedError(f"the activation {activation!r} is not imported")
    *outer, width = tensors.shape_of(x)
    length = tensors.shape_of(scale)[0]
    wide, factors, opening = (R.astype(t, "float32") for t in (x, scale, gate))
    groups = tensors.reshaped(wide, [*outer, simple(width // length), length])
    normal = tensors.reshaped(
        R.nn.rms_norm(cx.emit(groups), factors, [-1], epsilon), [*outer, width]
    )
    opening = (R.sigmoid if activation == "sigmoid" else R.nn.silu)(opening)
    return R.astype(normal * opening, tensors.dtype_of(x))


@converter("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(
    cx: Context, a: Expr, dt_bias: Expr, decay_scale: Expr, b: Expr | None = None
) -> list[Expr]:
    shifted = R.astype(a, "float32") + dt_bias
    decay = R.astype(decay_scale * R.nn.softplus(shifted), tensors.dtype_of(a))
    if b is None:
        return [decay]
    return [decay, R.astype(R.sigmoid(R.astype(b, "float32")), tensors.dtype_of(b))]


# -- Decoders ---------------------------------------------------------------------------------


@converter("DecoderMaskedMultiHeadAttention", domain=DOMAIN, admitted={"output_qk": (0,)})
def decoder_attention(
    cx: Context,
    query: Expr,
    key: Expr | None = None,
    value: Expr | None = None,
    mask_index: Expr | None = None,
    attention_bias: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    past_sequence_length: Value = None,
    beam_width: Expr | None = None,
    cache_indirection: Expr | None = None,
    bias: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> list[Expr]:
    """A step of a decoder: one query, behind `past_sequence_length` positions of the caches."""
    if beam_width is not None or cache_indirection is not None:
        raise UnsupportedError("caches of beams are not imported")
    if key is None or value is None:
        raise UnsupportedError("queries, keys and values packed into one are not imported")
    options = scale, attention_bias, mask_index, mask_filter_value
    if tensors.rank_of(key) == 4:  # the keys and values of an encoder
        (query,) = with_biases(cx, [query], bias)
        q = cx.emit(heads_apart(cx, query, num_heads))
        return [attended(cx, q, key, value, *options, causal=False)]
    parts = [heads_apart(cx, x, num_heads) for x in with_biases(cx, [query, key, value], bias)]
    q, k, v = map(cx.emit, parts)
    caches: list[Expr] = [k, v]
    if past_key is not None and past_value is not None:
        if not past_present_share_buffer or past_sequence_length is None:
            raise UnsupportedError("caches are imported with past_present_share_buffer only")
        past = cx.size_in(past_sequence_length)
        starts = R.full(
            (tensors.shape_of(q)[0],), cx.tensor(cx.contents([past], [], "int64")), "int64"
        )
        caches = [
            written(cx, cache, new, cx.emit(starts), 2)
            for cache, new in ((past_key, k), (past_value, v))
        ]
        end = simple(past + 1)
        k, v = (cx.emit(R.strided_slice(cache, [2], [0], [end])) for cache in caches)
    return [attended(cx, q, k, v, *options, causal=False), *caches]


@converter(
    "MRotaryEmbedding", domain=DOMAIN, ignored=["scale"], admitted={"is_packed_batching": (0,)}
)
def rotary_of_three(
    cx: Context,
    x: Expr,
    position_ids: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    *,
    mrope_section: Sequence[int],
    interleaved: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    """Rotary embedding, where each angle has the position in time, in height or in width."""
    half = whole(tensors.shape_of(cos_cache)[1])
    if mrope_layout:
        sections = np.zeros(half, np.int64)
        for k in (1, 2):
            sections[k : 3 * mrope_section[k] : 3] = k
    else:
        sections = np.repeat(np.arange(3), mrope_section)
    tables = []
    for cache in (cos_cache, sin_cache):
        every = cx.emit(R.take(cache, position_ids, 0))
        time, height, width = (
            R.squeeze(R.strided_slice(every, [0], [k], [k + 1]), [0]) for k in range(3)
        )
        chosen = R.where(const(sections == 2), width, time)
        tables.append(cx.emit(R.where(const(sections == 1), height, chosen)))
    return rotary_embedding(
        cx,
        x,
        *tables,
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )


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
        gate = R.sigmoid(hidden * scalar(activation_alpha, hidden))
        shifted = linear + scalar(activation_beta, linear)
        hidden = hidden * gate * shifted
    elif activation_type in _ACTIVATIONS and fc3 is None:
        hidden = _ACTIVATIONS[activation_type](hidden)
    else:
        raise UnsupportedError(f"the activation {activation_type!r} is not imported")
    y = _products(cx, cx.emit(hidden), fc2, fc2_bias, group, 1)
    y = reshaped(y, [tokens, k, shape_of(fc2)[1]])
    return reshaped(R.sum(y * R.expand_dims(weights, 2), axis=[1]), shape)


def _chosen(cx: Context, probs: Expr, k: int, *, normalised: bool) -> tuple[Expr, Expr]:
    """The weights and the numbers of the experts of each token."""
    best = cx.builder.emit(R.topk(R.nn.softmax(probs, -1), k, -1, "both", True, "int64"))
    weights, experts = (cx.emit(TupleGetItem(best, n)) for n in (0, 1))
    if normalised:
        weights = cx.emit(weights / R.sum(weights, axis=[-1], keepdims=True))
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
    return found if bias is None else cx.emit(found + R.take(bias, group, 0))


def _halves(cx: Context, x: Expr, *, interleaved: bool) -> tuple[Expr, Expr]:
    """Gates and what they are for: the even and the odd columns, or one after the other."""
    width = shape_of(x)[1]
    half = simple(width // 2)
    bounds = ((0, width), (1, width)) if interleaved else ((0, half), (half, width))
    step = 2 if interleaved else 1
    first, second = (R.strided_slice(x, [1], [a], [b], [step]) for a, b in bounds)
    return first, second
