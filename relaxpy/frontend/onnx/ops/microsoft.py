"""Fused operators of the domain com.microsoft, which ONNX Runtime's optimiser writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.ops.attention import rotary_embedding
from relaxpy.frontend.onnx.ops.conv import conv
from relaxpy.frontend.onnx.ops.quantized import dequantized, dynamic_quantize_linear, quantized
from relaxpy.frontend.onnx.ops.recurrent import lstm_layer
from relaxpy.frontend.onnx.registry import Value, converter
from relaxpy.frontend.onnx.view import code_of
from relaxpy.frontend.shared.tensors import (
    Size,
    dtype_of,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
)
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R

DOMAIN = "com.microsoft"


@converter("Gelu", domain=DOMAIN)
def gelu(cx: Context, x: Expr) -> Expr:
    return R.nn.gelu(x)


@converter("BiasGelu", domain=DOMAIN)
def bias_gelu(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.nn.gelu(R.add(a, b))


@converter("FastGelu", domain=DOMAIN)
def fast_gelu(cx: Context, x: Expr, bias: Expr | None = None) -> Expr:
    return R.nn.gelu_tanh(x if bias is None else R.add(x, bias))


@converter("QuickGelu", domain=DOMAIN)
def quick_gelu(cx: Context, x: Expr, *, alpha: float = 1.702) -> Expr:
    return R.multiply(x, R.sigmoid(R.multiply(x, scalar(alpha, x))))


@converter("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(
    cx: Context,
    a: Expr,
    b: Expr,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Expr:
    if transBatchA or transBatchB:
        raise UnsupportedError("transBatchA and transBatchB are not imported")
    result = R.matmul(_transposed(a) if transA else a, _transposed(b) if transB else b)
    return result if alpha == 1.0 else R.multiply(result, scalar(alpha, a))


def _transposed(x: Expr) -> Expr:
    rank = rank_of(x)
    if rank < 2:
        return x
    return R.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


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
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    result = conv(
        cx,
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = result if z is None else R.add(result, z)
    parameters = list(activation_params or [])
    match activation:
        case "":
            return y
        case "Relu":
            return R.nn.relu(y)
        case "Sigmoid":
            return R.sigmoid(y)
        case "Tanh":
            return R.tanh(y)
        case "LeakyRelu":
            return R.nn.leakyrelu(y, parameters[0] if parameters else 0.01)
        case "Clip":
            low, high = parameters
            return R.clip(y, low, high)
        case _:
            raise UnsupportedError(f"the activation {activation!r} is not imported")


# -- Normalisation ----------------------------------------------------------------------------


def _rms(cx: Context, x: Expr, scale: Expr, epsilon: float) -> Expr:
    return R.nn.rms_norm(x, scale, [-1], epsilon)


@converter("SimplifiedLayerNormalization", domain=DOMAIN)
@converter("SimplifiedLayerNormalization", ignored=["stash_type"])
def simplified_layer_normalization(
    cx: Context, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    if axis not in (-1, rank_of(x) - 1):
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
    total = R.add(x, skip)
    total = cx.emit(total if bias is None else R.add(total, bias))
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
) -> list[Expr | None]:
    total = R.add(x, skip)
    total = cx.emit(total if bias is None else R.add(total, bias))
    return [_layer(cx, total, gamma, beta, epsilon), None, None, total]


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
    batch, length = shape_of(input_ids, 2)
    total = R.take(word_embedding, input_ids, axis=0)
    if position_ids is None:
        positions = R.strided_slice(position_embedding, [0], [0], [length])
    else:
        positions = R.take(position_embedding, position_ids, axis=0)
    total = R.add(total, positions)
    if segment_ids is not None and segment_embedding is not None:
        total = R.add(total, R.take(segment_embedding, segment_ids, axis=0))
    total = cx.emit(total)
    count = R.zeros((batch,), "int32") if mask is None else R.sum(R.astype(mask, "int32"), axis=[1])
    return [_layer(cx, total, gamma, beta, epsilon), count, total]


# -- Attention --------------------------------------------------------------------------------


def _heads(cx: Context, x: Expr, heads: int) -> Expr:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, width = shape_of(x, 3)
    if not isinstance(width, int) or width % heads:
        raise UnsupportedError(f"a width of {width} is no multiple of {heads} heads")
    return R.permute_dims(reshaped(x, (batch, length, heads, width // heads)), [0, 2, 1, 3])


def _seen(mask: Expr, batch: Size, keys: Size) -> Expr:
    """Which keys a mask admits; one of rank 1 has the number of keys of each sequence."""
    axes = {1: [1], 2: [1, 2], 3: [1], 4: []}.get(rank_of(mask))
    if axes is None:
        raise UnsupportedError(f"a mask of rank {rank_of(mask)} is not imported")
    if rank_of(mask) == 1:
        if str(shape_of(mask)[0]) != str(batch):
            raise UnsupportedError("a mask of starts and ends is not imported")
        lengths = R.expand_dims(R.astype(mask, "int64"), axes)
        return R.expand_dims(R.less(R.arange(0, keys, 1, "int64"), lengths), [1, 2])
    seen = R.astype(mask, "bool")
    return R.expand_dims(seen, axes) if axes else seen


def _attended(
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
    batch, heads, length, size = shape_of(q, 4)
    width = shape_of(v)[3]
    scores = R.matmul(q, _transposed(k))
    scores = cx.emit(R.multiply(scores, scalar(scale or 1 / math.sqrt(float(size)), q)))  # type: ignore[arg-type]
    if bias is not None:
        scores = R.add(scores, bias)
    if mask is not None:
        seen = _seen(mask, batch, shape_of(k)[2])
        scores = R.where(seen, scores, R.add(scores, scalar(filter_value, q)))
    if causal:
        every = shape_of(k)[2]
        rows = R.arange(every - length, every, 1, "int64")
        columns = R.arange(0, every, 1, "int64")
        seen = R.greater_equal(R.expand_dims(rows, 1), columns)
        scores = R.where(seen, scores, scalar(filter_value, q))
    found = R.permute_dims(R.matmul(R.nn.softmax(scores, -1), v), [0, 2, 1, 3])
    return reshaped(found, (batch, length, product([heads, width])))


@converter("Attention", domain=DOMAIN)
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
    every = cx.emit(every if bias is None else R.add(every, bias))
    width = shape_of(every)[2]
    if not isinstance(width, int):
        raise UnsupportedError("the width of the weights is symbolic")
    sizes = list(qkv_hidden_sizes or [width // 3] * 3)
    ends = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    q, k, v = (
        _heads(cx, cx.emit(R.strided_slice(every, [2], [a], [b])), num_heads)
        for a, b in itertools.pairwise(ends)
    )
    if past is not None:
        before = [R.squeeze(R.strided_slice(past, [0], [n], [n + 1]), [0]) for n in (0, 1)]
        k, v = (R.concat([old, new], axis=2) for old, new in zip(before, (k, v), strict=True))
    k, v = cx.emit(k), cx.emit(v)
    y = _attended(
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
    return [y, R.stack([k, v], axis=0)]


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
    sizes = shape_of(x)
    if len(sizes) == 3 and not num_heads:
        hidden, half = sizes[2], shape_of(cos_cache)[1]
        if not isinstance(hidden, int) or not isinstance(half, int):
            raise UnsupportedError("the size of heads is symbolic")
        num_heads = hidden // (2 * half)
    if rank_of(position_ids) == 1:
        steps = R.arange(0, sizes[-2], 1, dtype_of(position_ids))
        position_ids = R.expand_dims(R.add(steps, position_ids), [0])
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
    parts = [query, key, value]
    if bias is not None:
        begin = 0
        shifted: list[Expr] = []
        for part in parts:
            width = shape_of(part)[-1]
            shifted.append(
                cx.emit(R.add(part, R.strided_slice(bias, [0], [begin], [begin + width])))
            )
            begin = begin + width  # type: ignore[assignment]
        parts = shifted
    q, k, v = (x if rank_of(x) == 4 else cx.emit(_heads(cx, x, num_heads)) for x in parts)
    if past_key is not None and past_value is not None:
        k = cx.emit(R.concat([past_key, k], axis=2))
        v = cx.emit(R.concat([past_value, v], axis=2))
    y = _attended(
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


# -- Quantisation -----------------------------------------------------------------------------


@converter("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    cx: Context,
    a: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    rounded, scale, zero = dynamic_quantize_linear(cx, a)
    left = dequantized(cx.emit(rounded), scale, zero, dtype_of(a))
    result = R.matmul(left, dequantized(b, b_scale, b_zero_point, dtype_of(a)))
    return result if bias is None else R.add(result, bias)


@converter("DynamicQuantizeLSTM", domain=DOMAIN, ignored=["hidden_size"])
def dynamic_quantize_lstm(
    cx: Context,
    x: Expr,
    w: Expr,
    r: Expr,
    b: Expr | None,
    sequence_lens: Expr | None,
    initial_h: Expr | None,
    initial_c: Expr | None,
    p: Expr | None,
    w_scale: Expr,
    w_zero_point: Expr,
    r_scale: Expr,
    r_zero_point: Expr,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    input_forget: int = 0,
) -> list[Expr]:
    def weights(values: Expr, scale: Expr, zero: Expr) -> Expr:
        """The transposed weights, whose scales are for a direction, or each of its columns."""
        missing = [1, 2] if rank_of(scale) == 1 else [1]
        scale, zero = (R.expand_dims(part, missing) for part in (scale, zero))
        return cx.emit(R.permute_dims(dequantized(values, scale, zero, "float32"), [0, 2, 1]))

    every, scale, zero = dynamic_quantize_linear(cx, x)
    operands = [
        dequantized(cx.emit(every), scale, zero, "float32"),
        weights(w, w_scale, w_zero_point),
        weights(r, r_scale, r_zero_point),
        *(b, sequence_lens, initial_h, initial_c),
    ]
    functions = activations, activation_alpha, activation_beta
    return lstm_layer(
        cx, operands, p, direction, functions, clip, 0, bool(input_forget), quantized=True
    )


@converter("MatMulNBits", domain=DOMAIN, ignored=["accuracy_level"])
def matmul_nbits(
    cx: Context,
    a: Expr,
    b: Expr,
    scales: Expr,
    zero_points: Expr | None = None,
    g_idx: Expr | None = None,
    bias: Expr | None = None,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    bits: int = 4,
    block_size: int,
) -> Expr:
    if g_idx is not None or bits not in (4, 8):
        raise UnsupportedError("blocks by g_idx, or of other than 4 or 8 bits, are not imported")
    blocks = -(-K // block_size)
    wide = dtype_of(a)

    def unpacked(packed: Expr, row: int) -> Expr:
        whole = R.reshape(packed, (N, -1))
        if bits == 4:
            low = R.bitwise_and(whole, scalar(15, packed))
            both = R.stack([low, R.right_shift(whole, scalar(4, packed))], axis=2)
            whole = R.reshape(both, (N, -1))
        return R.astype(R.strided_slice(cx.emit(whole), [1], [0], [row]), wide)

    values = reshaped(unpacked(b, blocks * block_size), (N, blocks, block_size))
    middle: Expr = scalar(1 << (bits - 1), a)
    if zero_points is not None:
        if dtype_of(zero_points) == "uint8":
            middle = unpacked(zero_points, blocks)
        else:
            middle = reshaped(zero_points, (N, blocks))
        middle = R.expand_dims(middle, 2)
    factors = reshaped(scales, (N, blocks, 1))
    weights = reshaped(R.multiply(R.subtract(values, middle), factors), (N, blocks * block_size))
    result = R.matmul(a, R.permute_dims(R.strided_slice(cx.emit(weights), [1], [0], [K])))
    return result if bias is None else R.add(result, bias)


def _qlinear(op: str) -> None:
    def convert(
        cx: Context,
        a: Expr,
        a_scale: Expr,
        a_zero: Expr | None,
        b: Expr,
        b_scale: Expr,
        b_zero: Expr | None,
        c_scale: Expr,
        c_zero: Expr | None = None,
    ) -> Expr:
        left = dequantized(a, a_scale, a_zero, "float32")
        right = dequantized(b, b_scale, b_zero, "float32")
        value = getattr(R, op)(left, right)
        return quantized(cx, value, c_scale, c_zero, code_of(dtype_of(a)), 1, "float32")

    converter({"add": "QLinearAdd", "multiply": "QLinearMul"}[op], domain=DOMAIN)(convert)


_qlinear("add")
_qlinear("multiply")


def _qlinear_unary(
    cx: Context, x: Expr, scales: Sequence[Value], op: Callable[[Expr], Expr]
) -> Expr:
    """The quantised result of an operator on what a quantised tensor stands for."""
    if not 3 <= len(scales) <= 4:
        raise UnsupportedError(f"it has {len(scales) + 1} operands, expected 4 or 5")
    found = [None if value is None else cx.tensor(value) for value in scales]
    x_scale, x_zero, y_scale, y_zero = [*found, None][:4]
    if x_scale is None or y_scale is None:
        raise UnsupportedError("a scale is missing")
    value = op(dequantized(x, x_scale, x_zero, "float32"))
    return quantized(cx, value, y_scale, y_zero, code_of(dtype_of(x)), 1, "float32")


@converter("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(cx: Context, x: Expr, *scales: Value) -> Expr:
    return _qlinear_unary(cx, x, scales, R.sigmoid)


@converter("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(cx: Context, x: Expr, *scales: Value, alpha: float = 0.01) -> Expr:
    return _qlinear_unary(cx, x, scales, lambda v: R.nn.leakyrelu(v, alpha))


@converter("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    cx: Context, x: Expr, *scales: Value, channels_last: int = 0
) -> Expr:
    first = 1 if channels_last else 2
    axes = list(range(first, first + rank_of(x) - 2))
    return _qlinear_unary(cx, x, scales, lambda v: R.mean(v, axes, keepdims=True))


@converter("QLinearConcat", domain=DOMAIN)
def qlinear_concat(cx: Context, y_scale: Expr, y_zero: Expr, *inputs: Expr, axis: int) -> Expr:
    parts = [
        cx.emit(dequantized(x, scale, zero, "float32"))
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    code = code_of(dtype_of(inputs[0]))
    return quantized(cx, R.concat(parts, axis=axis), y_scale, y_zero, code, 1, "float32")
