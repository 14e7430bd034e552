"""Quantised operators, `qnn`: scales and zero points are operands, results are integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, axes_of, define, dims, dtype_of, fields_of, number
from relaxpy.ir.relay.op.nn import AVERAGE_POOL_2D, CONVOLUTION_2D, CONVOLUTION_2D_TRANSPOSED
from relaxpy.ir.relay.op.registry import REQUIRED, Op
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.zero_points import without_zero_points

_FLOAT = "float32"
_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32")


def _floats(out_dtype: str, rounding: str = "None") -> str:
    """Return the datatype of numbers that become integers: float32 does not hold every int32."""
    return "float64" if out_dtype == "int32" or rounding != "None" else _FLOAT


def _along(parameter: rx.Expr, data: rx.Expr, axis: int, dtype: str = _FLOAT) -> rx.Expr:
    """Return a parameter in a datatype that broadcasts along an axis of data."""
    values, rank = R.astype(parameter, dtype), len(dims(data))
    if len(dims(parameter)) == 0:
        return values
    (axis,) = axes_of(axis, rank)
    return R.reshape(values, [-1 if other == axis else 1 for other in range(rank)])


def real(
    data: rx.Expr, scale: rx.Expr, zero_point: rx.Expr, axis: int = -1, dtype: str = _FLOAT
) -> rx.Expr:
    """Return the numbers that integers stand for: (data - zero_point) * scale."""
    offset = R.subtract(R.astype(data, dtype), _along(zero_point, data, axis, dtype))
    return R.multiply(offset, _along(scale, data, axis, dtype))


def _halves_up(x: rx.Expr) -> rx.Expr:
    return R.floor(R.add(x, number(0.5, "float64")))


def _halves_away(x: rx.Expr) -> rx.Expr:
    return R.multiply(R.sign(x), _halves_up(R.abs(x)))


_ROUNDINGS: Final[dict[str, Callable[[rx.Expr], rx.Expr]]] = {
    "None": R.round,
    "UPWARD": _halves_up,
    "TONEAREST": _halves_away,
}


def integers(
    data: rx.Expr,
    scale: rx.Expr,
    zero_point: rx.Expr,
    axis: int,
    out_dtype: str,
    rounding: str = "None",
) -> rx.Expr:
    """Return the integers that stand for numbers, clipped to the range of the datatype."""
    dtype = _floats(out_dtype, rounding)
    if dtype == _FLOAT:
        return R.quantize(data, scale, zero_point, axis, out_dtype)
    if out_dtype not in _INTEGERS:
        raise RelationError(f"out_dtype is {' or '.join(_INTEGERS)}, found {out_dtype}")
    quotient = R.divide(R.astype(data, dtype), _along(scale, data, axis, dtype))
    result = R.add(_ROUNDINGS[rounding](quotient), _along(zero_point, data, axis, dtype))
    info = np.iinfo(out_dtype)
    return R.astype(R.clip(result, float(info.min), float(info.max)), out_dtype)


def _quantize(args: Args, attrs: Any) -> rx.Expr:
    data, scale, zero_point = args
    return integers(data, scale, zero_point, attrs["axis"], attrs["out_dtype"])


def _dequantize(args: Args, attrs: Any) -> rx.Expr:
    data, scale, zero_point = args
    return R.astype(real(data, scale, zero_point, attrs["axis"]), attrs["out_dtype"])


def _requantize(args: Args, attrs: Any) -> rx.Expr:
    data, scale, zero_point, out_scale, out_zero_point = args
    axis, out_dtype, rounding = (attrs[name] for name in ("axis", "out_dtype", "rounding"))
    if rounding not in _ROUNDINGS:
        raise RelationError(f"rounding is {' or '.join(_ROUNDINGS)}, found {rounding!r:.60}")
    numbers = real(data, scale, zero_point, axis, _floats(out_dtype, rounding))
    return integers(numbers, out_scale, out_zero_point, axis, out_dtype, rounding)


define(
    "qnn.quantize",
    "data output_scale output_zero_point",
    _quantize,
    {"axis": -1, "out_dtype": "int8"},
)
define(
    "qnn.dequantize",
    "data input_scale input_zero_point",
    _dequantize,
    {"axis": -1, "out_dtype": "float32"},
)
define(
    "qnn.requantize",
    "data input_scale input_zero_point output_scale output_zero_point",
    _requantize,
    {"axis": -1, "rounding": "None", "compute_dtype": "None", "out_dtype": "int8"},
)

# Of one operand

_SCALES = "scale zero_point output_scale output_zero_point"
_UNARY = {
    **{name: getattr(R, name) for name in ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid")},
    **{name: getattr(R, name) for name in ("log", "abs")},
    "hardswish": lambda x: R.divide(
        R.multiply(x, R.clip(R.add(x, number(3, dtype_of(x))), 0, 6)), number(6, dtype_of(x))
    ),
}


def _unary(function: Callable[[rx.Expr, Any], rx.Expr]) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        data, scale, zero_point, out_scale, out_zero_point = args
        dtype = dtype_of(data)
        result = function(real(data, scale, zero_point, dtype=_floats(dtype)), attrs)
        return integers(result, out_scale, out_zero_point, -1, dtype)

    return translate


for _name, _function in _UNARY.items():
    define(
        f"qnn.{_name}",
        f"x {_SCALES}",
        _unary(lambda x, attrs, function=_function: function(x)),  # type: ignore[misc]
    )
define(
    "qnn.leaky_relu",
    f"x {_SCALES}",
    _unary(lambda x, attrs: R.nn.leakyrelu(x, attrs["alpha"])),
    {"alpha": 0.25},
)
define(
    "qnn.softmax",
    f"x {_SCALES}",
    _unary(lambda x, attrs: R.nn.softmax(x, attrs["axis"])),
    {"axis": -1},
)


def _plain(name: str, args: Args, attrs: Any) -> rx.Expr:
    """Return the expression of the operator of this name for numbers."""
    translate = Op.get(name).record.translate
    assert translate is not None
    return translate(args, attrs)


define(
    "qnn.avg_pool2d",
    "data input_scale input_zero_point output_scale output_zero_point",
    _unary(lambda x, attrs: _plain("nn.avg_pool2d", (x,), attrs)),
    AVERAGE_POOL_2D,
    makers={"strides": REQUIRED, "padding": REQUIRED, "dilation": REQUIRED},
)

# Of two operands

_BOTH = "lhs_scale lhs_zero_point rhs_scale rhs_zero_point output_scale output_zero_point"


def _binary(function: Callable[[rx.Expr, rx.Expr], rx.Expr]) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        lhs, rhs, lhs_scale, lhs_zero, rhs_scale, rhs_zero, scale, zero_point = args
        dtype = dtype_of(lhs)
        result = function(
            real(lhs, lhs_scale, lhs_zero, attrs["lhs_axis"], _floats(dtype)),
            real(rhs, rhs_scale, rhs_zero, attrs["rhs_axis"], _floats(dtype)),
        )
        return integers(result, scale, zero_point, -1, dtype)

    return translate


for _name, _operator in (("add", R.add), ("subtract", R.subtract), ("mul", R.multiply)):
    define(f"qnn.{_name}", f"lhs rhs {_BOTH}", _binary(_operator), {"lhs_axis": -1, "rhs_axis": -1})


def _concatenate(args: Args, attrs: Any) -> rx.Expr:
    data, scales, zero_points, scale, zero_point = args
    operands = [fields_of(operand) for operand in (data, scales, zero_points)]
    counts = {len(fields) for fields in operands}
    if len(counts) > 1 or 0 in counts:
        raise RelationError("there is a scale and a zero point for each of one or more tensors")
    dtype = dtype_of(operands[0][0])
    triples = zip(*operands, strict=True)
    numbers = [real(x, s, z, dtype=_floats(dtype)) for x, s, z in triples]
    return integers(R.concat(numbers, attrs["axis"]), scale, zero_point, -1, dtype)


define(
    "qnn.concatenate",
    "data input_scales input_zero_points output_scale output_zero_point",
    _concatenate,
    {"axis": 0},
)


def _product(name: str) -> Any:
    """The product of integers without their zero points; the scales are the caller's."""

    def translate(args: Args, attrs: Any) -> rx.Expr:
        attributes = {**attrs, "out_dtype": attrs["out_dtype"] or "int32"}
        result = without_zero_points(name, partial(_plain, name), args, attributes)
        if result is not None:
            return result
        channels = max(attrs.get("kernel_layout", "").find("O"), 0)
        offsets = [
            R.subtract(R.astype(data, "int32"), _along(zero_point, data, axis, "int32"))
            for data, zero_point, axis in zip(args[:2], args[2:4], (0, channels), strict=True)
        ]
        return _plain(name, tuple(offsets), attributes)

    return translate


_PRODUCTS = "input_zero_point kernel_zero_point input_scale kernel_scale"
define(
    "qnn.conv2d",
    f"data kernel {_PRODUCTS}",
    _product("nn.conv2d"),
    {"kernel_size": None, "channels": None, **CONVOLUTION_2D, "out_dtype": "int32"},
    makers={"kernel_size": REQUIRED, "channels": REQUIRED},
)
define(
    "qnn.conv2d_transpose",
    f"data weight {_PRODUCTS}",
    _product("nn.conv2d_transpose"),
    {**CONVOLUTION_2D_TRANSPOSED, "out_dtype": "int32"},
)
define(
    "qnn.dense",
    f"data weight {_PRODUCTS}",
    _product("nn.dense"),
    {"units": REQUIRED, "out_dtype": "int32"},
)
define(
    "qnn.contrib_dense_pack",
    f"data weight {_PRODUCTS}",
    _product("nn.contrib_dense_pack"),
    {"units": None, "out_dtype": "int32", "weight_layout": "NC"},
)
define(
    "qnn.batch_matmul",
    "x y x_zero_point y_zero_point x_scale y_scale",
    _product("nn.batch_matmul"),
    {"out_dtype": "int32", "transpose_a": False, "transpose_b": True},
)


# Integers that floats stand for: the datatype is an operand

CODES: Final = {"int8": 1, "uint8": 2, "int32": 3}


def _is_code(code: rx.Expr, value: int) -> rx.Expr:
    return R.equal(code, rx.Constant(np.array(value, dtype_of(code))))


def _simulated_quantize(args: Args, attrs: Any) -> rx.Expr:
    data, code, scale, zero_point = args
    axis = attrs["axis"]
    divided = R.round(R.divide(data, _along(scale, data, axis)))
    numbers = R.add(divided, _along(zero_point, data, axis))
    result = data
    for dtype, value in CODES.items():
        info = np.iinfo(dtype)
        clipped = R.clip(numbers, float(info.min), float(info.max))
        result = R.where(_is_code(code, value), clipped, result)
    return result


def _simulated_dequantize(args: Args, attrs: Any) -> rx.Expr:
    data, code, scale, zero_point = args
    numbers = real(data, scale, zero_point, attrs["axis"])
    return R.where(_is_code(code, 0), data, numbers)


define(
    "qnn.simulated_quantize",
    "data out_dtype output_scale output_zero_point",
    _simulated_quantize,
    {"axis": -1},
)
define(
    "qnn.simulated_dequantize",
    "data in_dtype input_scale input_zero_point",
    _simulated_dequantize,
    {"axis": -1},
)
