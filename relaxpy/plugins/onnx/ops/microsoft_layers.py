"""Operators of the domain com.microsoft of decoders, gates, matrices and mixtures of experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.tir import reduce
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import as_size, product, reshaped, scalar, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple, whole
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops.attention import rotary_embedding, written
from relaxpy.plugins.onnx.ops.creation import unique
from relaxpy.plugins.onnx.ops.microsoft import DOMAIN, attended, heads_apart, with_biases
from relaxpy.plugins.onnx.registry import Value, converter


@converter("Inverse", domain=DOMAIN)
def inverse(cx: Context, x: Expr) -> Expr:
    dtype = tensors.dtype_of(x)
    wide = R.astype(x, "float32") if dtype == "float16" else x
    return tensors.call("linalg_inv", [wide], [(0, tensors.shape_of(x), dtype, False)])


@converter("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b, "int32" if tensors.dtype_of(a) == "int16" else "uint32")


@converter("Unique", domain=DOMAIN)
def unique_in_order(cx: Context, x: Expr) -> list[Expr]:
    values, _, places, counts = unique(cx, x, sorted=0)
    return [values, places, counts]


@converter("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(cx: Context, x: Expr, *, size: int, dim: int = -1, step: int = 1) -> Expr:
    """All slices of a size along an axis, each `step` behind the one before, in a last axis."""
    rank = tensors.rank_of(x)
    axis = tensors.normal_axis(dim, rank)
    count = simple((tensors.shape_of(x)[axis] - size) // step + 1)
    starts = R.multiply(R.arange(0, count, 1, "int64"), const(step, "int64"))
    places = R.add(R.expand_dims(starts, 1), R.arange(0, size, 1, "int64"))
    parts = cx.emit(R.take(x, cx.emit(places), axis))
    order = [*range(rank + 1)]
    order.append(order.pop(axis + 1))
    return R.permute_dims(parts, order)


# -- Gates ------------------------------------------------------------------------------------


@converter("ScaledSiLU", domain=DOMAIN)
def scaled_silu(cx: Context, x: Expr, scale: Expr | None = None, *, alpha: float = 1.0) -> Expr:
    factor = tensors.scalar(alpha, x) if scale is None else R.astype(scale, tensors.dtype_of(x))
    return R.nn.silu(R.multiply(x, factor))


@converter("GatedAdd", domain=DOMAIN)
def gated_add(cx: Context, x: Expr, y: Expr, gate: Expr) -> Expr:
    return R.add(x, R.multiply(y, gate))


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
    return R.astype(R.multiply(normal, opening), tensors.dtype_of(x))


@converter("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(
    cx: Context, a: Expr, dt_bias: Expr, decay_scale: Expr, b: Expr | None = None
) -> list[Expr]:
    shifted = R.add(R.astype(a, "float32"), dt_bias)
    decay = R.astype(R.multiply(decay_scale, R.nn.softplus(shifted)), tensors.dtype_of(a))
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
