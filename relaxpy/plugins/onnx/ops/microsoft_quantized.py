"""Quantised operators of the domain com.microsoft, which ONNX Runtime's quantiser writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from inspect import Parameter, signature
from itertools import islice
from typing import Any, Final

from onnx.defs import onnx_opset_version
from typing_extensions import Unpack

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple
from relaxpy.plugins.onnx.context import (
    CONVERTERS,
    MICROSOFT as DOMAIN,
    Context,
    Value,
    converter,
    find,
)
from relaxpy.plugins.onnx.ops.conv import gemm
from relaxpy.plugins.onnx.ops.images import with_channels_first
from relaxpy.plugins.onnx.ops.microsoft import PLAIN, attention
from relaxpy.plugins.onnx.ops.quantized import (
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    matmul_integer,
    quantize_linear,
    quantized,
)
from relaxpy.plugins.onnx.ops.recurrent import BytesOf, LayerAttributes, lstm_layer, part
from relaxpy.plugins.onnx.view import code_of

_NEWEST: Final = onnx_opset_version()
converter("QuantizeLinear", domain=DOMAIN)(quantize_linear)
converter("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


@converter("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    cx: Context,
    a: Expr,
    b: Expr,
    a_scale: Expr,
    b_scale: Expr,
    a_zero_point: Expr | None = None,
    b_zero_point: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    dtype = tensors.dtype_of(b_scale)
    left = dequantized(a, a_scale, a_zero_point, dtype)
    result = R.matmul(left, dequantized(b, b_scale, b_zero_point, dtype))
    return result if bias is None else result + bias


@converter("QGemm", domain=DOMAIN)
def qgemm(
    cx: Context,
    a: Expr,
    a_scale: Expr,
    a_zero_point: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr,
    c: Expr | None = None,
    y_scale: Expr | None = None,
    y_zero_point: Expr | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """`c` counts in products of the scales of `a` and `b`, and `alpha`."""
    scale, zero = b_scale, b_zero_point
    if transB:  # a number for each column of the product is one for each row of b
        scale, zero = (R.expand_dims(p, 1) if tensors.rank_of(p) else p for p in (scale, zero))
    left = dequantized(a, a_scale, a_zero_point, "float32")
    right = dequantized(b, scale, zero, "float32")
    y = gemm(cx, left, right, alpha=alpha, transA=transA, transB=transB)
    if c is not None:
        step = a_scale * b_scale * tensors.scalar(alpha, a_scale)
        y = y + R.astype(c, "float32") * step
    if y_scale is None:
        return y
    code = code_of(tensors.dtype_of(a if y_zero_point is None else y_zero_point))
    return quantized(cx, y, y_scale, y_zero_point, code, 1, "float32")


@converter("QAttention", domain=DOMAIN, admitted=PLAIN)
def qattention(
    cx: Context,
    x: Expr,
    weight: Expr,
    bias: Expr,
    input_scale: Expr,
    weight_scale: Expr,
    mask_index: Expr | None = None,
    input_zero_point: Expr | None = None,
    weight_zero_point: Expr | None = None,
    past: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Expr]:
    dtype = tensors.dtype_of(bias)
    return attention(
        cx,
        dequantized(x, input_scale, input_zero_point, dtype),
        dequantized(weight, weight_scale, weight_zero_point, dtype),
        bias,
        mask_index,
        past,
        num_heads=num_heads,
        mask_filter_value=mask_filter_value,
        scale=scale,
        unidirectional=unidirectional,
    )


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
    return matmul_integer_to_float(
        cx, cx.emit(rounded), b, scale, b_scale, zero, b_zero_point, bias
    )


@converter("DynamicQuantizeLSTM", domain=DOMAIN, admitted={"layout": (0,)})
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
    input_forget: int = 0,
    **attributes: Unpack[LayerAttributes],
) -> list[Expr]:
    every, x_scale, x_zero = dynamic_quantize_linear(cx, x)
    every = cx.emit(every)
    states = cx.emit(R.permute_dims(r, [0, 2, 1]))
    _, rows, hidden = tensors.shape_of(states)
    is_even = (known := cx.array(r_zero_point)) is not None and not known.any()

    def product(_: Expr, direction: int) -> Expr:
        values, scale, zero = (part(p, direction) for p in (w, w_scale, w_zero_point))
        total = matmul_integer(cx, every, cx.emit(values), x_zero, cx.emit(zero))
        return R.astype(total, "float32") * (x_scale * scale)

    def each_row(p: Expr, direction: int) -> Expr:
        return cx.emit(R.broadcast_to(part(p, direction), (rows,)))

    def of_rows(direction: int) -> tuple[Expr, Expr, Expr | None]:
        values = part(states, direction)
        ones = R.ones((hidden, 1), tensors.dtype_of(values))
        sums = R.reshape(R.matmul(values, ones, "int32"), (rows,))
        scales = each_row(r_scale, direction)
        if is_even:
            return scales, sums, None
        zeros = cx.emit(R.astype(each_row(r_zero_point, direction), "int32"))
        count = cx.tensor(cx.contents([hidden], (), "int32"))
        return scales, sums - zeros * count, zeros

    return lstm_layer(
        cx,
        (x, w, states, b, sequence_lens, initial_h, initial_c),
        p,
        coupled=bool(input_forget),
        bytes_of=BytesOf(product, of_rows),
        **attributes,
    )


def _unpacked(cx: Context, packed: Expr, bits: int) -> Expr:
    """The numbers that the bytes along the last axis hold, the one in the lowest bits first."""
    packed = cx.emit(packed)
    *outer, count = tensors.shape_of(packed)
    parts = [
        R.bitwise_and(
            R.right_shift(packed, tensors.scalar(k, packed)),
            tensors.scalar((1 << bits) - 1, packed),
        )
        for k in range(0, 8, bits)
    ]
    both = R.stack(parts, axis=len(outer) + 1) if bits < 8 else packed
    return cx.emit(tensors.reshaped(both, [*outer, simple(count * (8 // bits))]))


@converter(
    "MatMulNBits", domain=DOMAIN, ignored=["accuracy_level"], admitted={"weight_prepacked": (0,)}
)
def matmul_nbits(
    cx: Context,
    a: Expr,
    b: Expr,
    scales: Expr,
    zero_points: Expr | None = None,
    g_idx: Expr | None = None,
    bias: Expr | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
) -> Expr:
    if g_idx is not None or bits not in (2, 4, 8):
        raise UnsupportedError("blocks by g_idx, or of other than 2, 4 or 8 bits, are not imported")
    blocks = -(-K // block_size)
    wide = tensors.dtype_of(a)

    def unpacked(packed: Expr, row: int) -> Expr:
        numbers = _unpacked(cx, R.reshape(packed, (N, -1)), bits)
        return R.astype(R.strided_slice(numbers, [1], [0], [row]), wide)

    values = tensors.reshaped(unpacked(b, blocks * block_size), (N, blocks, block_size))
    middle: Expr = tensors.scalar(1 << (bits - 1), a)
    if zero_points is not None:
        if tensors.dtype_of(zero_points) == "uint8":
            middle = unpacked(zero_points, blocks)
        else:
            middle = tensors.reshaped(zero_points, (N, blocks))
        middle = R.expand_dims(middle, 2)
    factors = tensors.reshaped(scales, (N, blocks, 1))
    weights = tensors.reshaped((values - middle) * factors, (N, blocks * block_size))
    result = R.matmul(a, R.permute_dims(R.strided_slice(cx.emit(weights), [1], [0], [K])))
    return result if bias is None else result + bias


@converter("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(
    cx: Context,
    data: Expr,
    indices: Expr,
    scales: Expr,
    zero_points: Expr | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Expr:
    """Some rows of a table of which each block along an axis has a scale."""
    rank = tensors.rank_of(data)
    at, along = tensors.normal_axis(gather_axis, rank), tensors.normal_axis(quantize_axis, rank)
    is_packed = tensors.dtype_of(data) == "uint8"
    if at == along or block_size < 1 or not (bits in (2, 4, 8) or not is_packed):
        raise UnsupportedError("blocks along the axis of the indices, or of 3 bits")

    def rows(x: Expr) -> Expr:
        return cx.emit(R.take(x, indices, at))

    def numbers(x: Expr) -> Expr:
        return _unpacked(cx, rows(x), bits) if is_packed else rows(x)

    def blocks(x: Expr) -> Expr:
        """A number of each block, for each of its elements."""
        axis = along + tensors.rank_of(indices) - 1 if along > at else along
        every = cx.emit(R.repeat(x, block_size, axis))
        return R.strided_slice(every, [axis], [0], [tensors.shape_of(values)[axis]])

    values = numbers(data)
    dtype = tensors.dtype_of(scales)
    found = R.astype(values, dtype)
    if zero_points is not None:
        zeros = numbers(zero_points)
        length = tensors.shape_of(scales)[-1]
        zeros = R.strided_slice(zeros, [tensors.rank_of(zeros) - 1], [0], [length])
        found = found - R.astype(blocks(cx.emit(zeros)), dtype)
    elif is_packed:
        found = found - tensors.scalar(1 << (bits - 1), scales)
    return found * blocks(rows(scales))


def _qlinear(name: str, count: int = 1, **more: Any) -> None:
    """Register the operator of this name on dequantised values.

    A scale and a zero point follow each of `count` operands, and those of the result come last.
    There are `more` attributes than the operator itself has, with these defaults.
    """
    plain, fewest = find("", name, _NEWEST), 3 * count + 1
    assert plain is not None

    def convert(cx: Context, *operands: Value, **attributes: Any) -> Expr:
        if not fewest <= len(operands) <= fewest + 1:
            raise UnsupportedError(
                f"it has {len(operands)} operands, expected {fewest} or {fewest + 1}"
            )
        found: list[Any] = [x if x is None else cx.tensor(x) for x in (*operands, None)]
        if any(scale is None for scale in (*found[1:fewest:3], found[fewest - 1])):
            raise UnsupportedError("a scale is missing")
        has_channels_last = attributes.pop("channels_last", 0)
        entry = find("", name, attributes.pop("opset", _NEWEST))
        assert entry is not None

        def computed(first: Expr) -> Expr:
            found[0] = first
            triples = zip(found[0::3], found[1::3], found[2::3], strict=False)
            values = [
                cx.emit(dequantized(x, scale, zero, "float32"))
                for x, scale, zero in islice(triples, count)
            ]
            value = entry.function(cx, *values, **attributes)
            code = code_of(tensors.dtype_of(first))
            return quantized(cx, value, found[fewest - 1], found[fewest], code, 1, "float32")

        if has_channels_last:
            return with_channels_first(cx, found[0], computed)
        return computed(found[0])

    @cache
    def parameters() -> tuple[Sequence[Parameter], Mapping[str, Parameter]]:
        operands = [*signature(convert).parameters.values()][1:2]
        kind = Parameter.KEYWORD_ONLY
        added = {name: Parameter(name, kind, default=value) for name, value in more.items()}
        return operands, {**plain.attributes, **added}

    entry = replace(plain, function=convert, since=1, parameters=parameters)
    CONVERTERS[DOMAIN, f"QLinear{name}"] = [entry]


for _name in ("Add", "Mul"):
    _qlinear(_name, 2)
for _name in ("Sigmoid", "LeakyRelu"):
    _qlinear(_name)
for _name in ("GlobalAveragePool", "AveragePool"):
    _qlinear(_name, channels_last=0)
_qlinear("Softmax", opset=Parameter.empty)


@converter("QLinearConcat", domain=DOMAIN)
def qlinear_concat(cx: Context, y_scale: Expr, y_zero: Expr, *inputs: Expr, axis: int) -> Expr:
    parts = [
        cx.emit(dequantized(x, scale, zero, "float32"))
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    code = code_of(tensors.dtype_of(inputs[0]))
    return quantized(cx, R.concat(parts, axis=axis), y_scale, y_zero, code, 1, "float32")


@converter("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    cx: Context,
    condition: Expr,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    y: Expr,
    y_scale: Expr,
    y_zero: Expr,
    z_scale: Expr,
    z_zero: Expr,
) -> Expr:
    chosen = R.where(
        condition,
        dequantized(x, x_scale, x_zero, "float32"),
        dequantized(y, y_scale, y_zero, "float32"),
    )
    return quantized(cx, chosen, z_scale, z_zero, code_of(tensors.dtype_of(x)), 1, "float32")
