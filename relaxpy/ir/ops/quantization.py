"""Quantisation of floats to integers or narrow floats, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import along
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.relax.known import literal_shape, tensor_of, tensor_sinfo
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import shape_text

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

INT8 = DataType("int8")
_NARROW = ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2")
_WIDE = ("float16", "bfloat16", "float32", "float64")


def _require_out(out_dtype: DataType, allowed: tuple[str, ...]) -> None:
    if str(out_dtype) not in allowed:
        raise rules.refuse_type(
            f"out_dtype is one of {', '.join(allowed)}, found {out_dtype}", out_dtype
        )


def _require_numbers(sinfo: TensorStructInfo, name: str) -> None:
    if sinfo.dtype.is_bool:
        raise rules.refuse_type(f"{name} holds numbers, found {sinfo}", sinfo)


def _is_scalar(sinfo: TensorStructInfo) -> bool:
    """True if a parameter is known to hold one number for all elements."""
    shape = literal_shape(sinfo)
    return sinfo.ndim == 0 or (shape is not None and len(shape) == 1 and rules.is_one(shape[0]))


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    """Literal parameters become part of the kernel, but for a divisor 0, which TIR refuses."""
    assert isinstance(call.op, Op)
    name = call.op.name.removeprefix("relax.")
    data, scale, zero_point = call.args
    factor, zero = rules.scalar_literal(scale), rules.scalar_literal(zero_point)
    is_divisor_0 = getattr(factor, "value", None) == 0
    return rules.te_kernel(
        builder,
        getattr(topi, name),
        name,
        data,
        scale if factor is None or is_divisor_0 else factor,
        zero_point if zero is None else zero,
        **call.attrs,
    )


def _quantized(
    data: TensorStructInfo,
    scale: TensorStructInfo,
    zero_point: TensorStructInfo,
    axis: int,
    out_dtype: DataType,
) -> TensorStructInfo:
    """Data in `out_dtype`; each parameter is a scalar, or has a number for each index of axis."""
    rules.require_float(scale, "scale")
    _require_numbers(zero_point, "zero_point")
    decided = True
    sizes = literal_shape(data)
    for name, sinfo in (("scale", scale), ("zero_point", zero_point)):
        if sinfo.ndim > 1:
            raise rules.refuse(f"{name} is a scalar or a vector, found {sinfo}", sinfo)
        if _is_scalar(sinfo):
            continue
        if data.ndim >= 0 and sinfo.ndim == 1:
            rules.normal_axis(axis, data.ndim)
        shape = literal_shape(sinfo)
        if sizes is None or shape is None:
            continue
        equal = prove_equal(shape[0], sizes[axis])
        decided = decided and equal is True
        if equal is False:
            raise rules.refuse(
                f"{name} {shape_text(shape)} has one element for each index along axis {axis} of "
                f"data {shape_text(sizes)}: {rules.shown(sizes[axis])}, found "
                f"{rules.shown(shape[0])}",
                sinfo,
            )
    return rules.tensor(data.shape if decided else None, out_dtype, data.vdevice, data.ndim)


@register(
    "relax.quantize",
    layout=along("axis"),
    pure=True,
    legalize=_legalize,
    gradient=gradients.no_gradient,
)
def quantize(
    data: TensorStructInfo,
    scale: TensorStructInfo,
    zero_point: TensorStructInfo,
    axis: int = -1,
    out_dtype: DataType = INT8,
) -> TensorStructInfo:
    """round(data / scale) + zero_point, or the nearest number of `out_dtype`.

    Shapes:
        data        any, float dtype
        scale       scalar or vector of one element, or one for each index along `axis`; floats
        zero_point  likewise; numbers
        result      as data, in `out_dtype`: an integer or float8
    Errors:
        StructInfoError: data or scale hold no floats, or the zero point Booleans; a parameter has
            another shape; the axis is out of range; there is no such `out_dtype`.
    Rule:
        Of two integers equally near, rounding takes the even one, and floats of 8 bits are not
        rounded to integers first (ONNX, QuantizeLinear).
    """
    _require_out(out_dtype, _NARROW)
    rules.require_float(data, "data")
    return _quantized(data, scale, zero_point, axis, out_dtype)


def _gradient_dequantize(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The gradients of (x - z) * s: g * s for x, and sums of g * (x - z) for s, of -g * s for z.

    They are computed in float32 where the result is narrower, and rounded once.
    """
    x, scale, zero_point = call.args
    out_dtype = cast("DataType", call.attrs["out_dtype"])
    dtype = FLOAT32 if out_dtype.bits < FLOAT32.bits else out_dtype
    rank = gradients.require_rank(x, "relax.dequantize")
    position = rank - 1

    def is_vector(parameter: Expr) -> bool:
        sinfo = tensor_sinfo(parameter)
        return sinfo is not None and not _is_scalar(sinfo)

    if is_vector(scale) or is_vector(zero_point):
        position = rules.normal_axis(cast("int", call.attrs["axis"]), rank)

    def broadcastable(parameter: Expr) -> Any:
        """A parameter in `dtype` that broadcasts to the shape of data."""
        wide = R.astype(parameter, dtype)
        if not is_vector(parameter):
            return R.reshape(wide, ())
        return R.expand_dims(wide, tuple(range(1, rank - position)))

    def parameter_gradient(parameter: Expr, total: Any) -> Expr:
        """The gradient of a parameter, from that of `broadcastable` in the shape of data."""
        sinfo = tensor_of(parameter)
        other_axes = None
        if is_vector(parameter):
            other_axes = [axis for axis in range(rank) if axis != position]
        reduced = total if other_axes == [] else R.sum(total, other_axes)
        same_shape = R.reshape(reduced, gradients.shape_like(parameter))
        return cast("Expr", R.astype(same_shape, sinfo.dtype))

    g: Any = gradient if dtype == out_dtype else R.astype(gradient, dtype)
    factor, zero = broadcastable(scale), broadcastable(zero_point)
    shifted = R.astype(x, dtype) - zero
    x_grad: Expr = R.grad.no_grad(x)
    if gradients.is_differentiable(x):
        x_grad = R.astype(g * factor, cast("Any", x.struct_info).dtype)
    zero_grad: Expr = R.grad.no_grad(zero_point)
    if gradients.is_differentiable(zero_point):
        zero_grad = parameter_gradient(zero_point, -g * factor)
    return [x_grad, parameter_gradient(scale, g * shifted), zero_grad]


@register(
    "relax.dequantize",
    layout=along("axis"),
    pure=True,
    legalize=_legalize,
    gradient=_gradient_dequantize,
)
def dequantize(
    data: TensorStructInfo,
    scale: TensorStructInfo,
    zero_point: TensorStructInfo,
    axis: int = -1,
    out_dtype: DataType = FLOAT32,
) -> TensorStructInfo:
    """(data - zero_point) * scale, the difference of integers taken exactly.

    Shapes:
        data        any; numbers
        scale       scalar or vector of one element, or one for each index along `axis`; floats
        zero_point  likewise; numbers
        result      as data, in `out_dtype`; in float16 the nearest finite number
    Errors:
        StructInfoError: data or the zero point hold Booleans, or scale holds no floats; a parameter
            has another shape; the axis is out of range; there is no such `out_dtype`.
    """
    _require_out(out_dtype, _WIDE)
    _require_numbers(data, "data")
    return _quantized(data, scale, zero_point, axis, out_dtype)
