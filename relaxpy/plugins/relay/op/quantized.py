"""Quantised operators, `qnn`: scales and zero points are operands, results are integers.

Each is the operator for numbers between `dequantize` and `quantize`; integers are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from relaxpy.ir import ops as R  # noqa: N812
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.relay.op.define import (
    axes_of,
    define,
    define_all,
    dims,
    dtype_of,
    fields_of,
    number,
    signature,
)
from relaxpy.plugins.relay.op.registry import REQUIRED, Op
from relaxpy.plugins.relay.op.relations import RelationError

_FLOAT: Final = "float32"
_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32")


def _floats(out_dtype: str, rounding: str = "None") -> str:
    """The datatype of numbers that become integers: float32 does not hold every int32."""
    return "float64" if out_dtype == "int32" or rounding != "None" else _FLOAT


def _along(parameter: rx.Expr, data: rx.Expr, axis: int, dtype: str = _FLOAT) -> rx.Expr:
    """A parameter in a datatype that broadcasts along an axis of data."""
    values, rank = R.astype(parameter, dtype), len(dims(data))
    if len(dims(parameter)) == 0:
        return values
    (axis,) = axes_of(axis, rank)
    return R.reshape(values, [-1 if other == axis else 1 for other in range(rank)])


def _real(
    data: rx.Expr, scale: rx.Expr, zero_point: rx.Expr, axis: int = -1, dtype: str = _FLOAT
) -> rx.Expr:
    """The numbers that integers stand for: (data - zero_point) * scale."""
    offset = R.subtract(R.astype(data, dtype), _along(zero_point, data, axis, dtype))
    return R.multiply(offset, _along(scale, data, axis, dtype))


def _halves_up(x: rx.Expr) -> rx.Expr:
    return R.floor(R.add(x, number(0.5, "float64")))


_ROUNDINGS: Final[dict[str, Callable[[rx.Expr], rx.Expr]]] = {
    "None": R.round,
    "UPWARD": _halves_up,
    "TONEAREST": lambda x: R.multiply(R.sign(x), _halves_up(R.abs(x))),
}


def _integers(
    data: rx.Expr,
    scale: rx.Expr,
    zero_point: rx.Expr,
    axis: int,
    out_dtype: str,
    rounding: str = "None",
) -> rx.Expr:
    """The integers that stand for numbers, clipped to the range of the datatype."""
    dtype = _floats(out_dtype, rounding)
    if dtype == _FLOAT:
        return R.quantize(data, scale, zero_point, axis, out_dtype)
    if out_dtype not in _INTEGERS:
        raise RelationError(f"out_dtype is {' or '.join(_INTEGERS)}, found {out_dtype}")
    quotient = R.divide(R.astype(data, dtype), _along(scale, data, axis, dtype))
    result = R.add(_ROUNDINGS[rounding](quotient), _along(zero_point, data, axis, dtype))
    info = np.iinfo(out_dtype)
    return R.astype(R.clip(result, float(info.min), float(info.max)), out_dtype)


@signature(
    "data input_scale input_zero_point output_scale output_zero_point",
    axis=-1,
    rounding="None",
    compute_dtype="None",
    out_dtype="int8",
)
def _requantize(o: Any) -> rx.Expr:
    if o.rounding not in _ROUNDINGS:
        raise RelationError(f"rounding is {' or '.join(_ROUNDINGS)}, found {o.rounding!r:.60}")
    numbers = _real(
        o.data, o.input_scale, o.input_zero_point, o.axis, _floats(o.out_dtype, o.rounding)
    )
    return _integers(numbers, o.output_scale, o.output_zero_point, o.axis, o.out_dtype, o.rounding)


define(
    "qnn.quantize",
    lambda data, scale, zero, *, axis, out_dtype: _integers(data, scale, zero, axis, out_dtype),
    "data output_scale output_zero_point",
    {"axis": -1, "out_dtype": "int8"},
)
define(
    "qnn.dequantize",
    lambda data, scale, zero, *, axis, out_dtype: R.astype(
        _real(data, scale, zero, axis), out_dtype
    ),
    "data input_scale input_zero_point",
    {"axis": -1, "out_dtype": "float32"},
)
define("qnn.requantize", _requantize)


def _plain(name: str, *args: rx.Expr, **attrs: Any) -> rx.Expr:
    """The expression of the operator of this name for numbers."""
    translate = Op.get(name).record.translate
    assert translate is not None
    return translate(args, Attrs(attrs))


# Of one operand


def _hardswish(x: rx.Expr) -> rx.Expr:
    product = R.multiply(x, R.clip(R.add(x, number(3, dtype_of(x))), 0, 6))
    return R.divide(product, number(6, dtype_of(x)))


def _unary(function: Callable[..., rx.Expr]) -> Any:
    def translate(
        x: rx.Expr,
        scale: rx.Expr,
        zero_point: rx.Expr,
        output_scale: rx.Expr,
        output_zero_point: rx.Expr,
        **attrs: Any,
    ) -> rx.Expr:
        dtype = dtype_of(x)
        result = function(_real(x, scale, zero_point, dtype=_floats(dtype)), **attrs)
        return _integers(result, output_scale, output_zero_point, -1, dtype)

    return translate


for _name in ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid", "log", "abs"):
    define(f"qnn.{_name}", _unary(getattr(R, _name)), attributes={})
define("qnn.hardswish", _unary(_hardswish), attributes={})
for _name, _operands in (
    *((name, "") for name in ("leaky_relu", "softmax")),
    ("avg_pool2d", "data input_scale input_zero_point output_scale output_zero_point"),
):
    _attributes = Op.get(f"nn.{_name}").record.attributes
    define(f"qnn.{_name}", _unary(partial(_plain, f"nn.{_name}")), _operands, _attributes)

# Of several operands


def _binary(function: Callable[[rx.Expr, rx.Expr], rx.Expr]) -> Any:
    def translate(
        lhs: rx.Expr,
        rhs: rx.Expr,
        lhs_scale: rx.Expr,
        lhs_zero_point: rx.Expr,
        rhs_scale: rx.Expr,
        rhs_zero_point: rx.Expr,
        output_scale: rx.Expr,
        output_zero_point: rx.Expr,
        *,
        lhs_axis: Any = -1,
        rhs_axis: Any = -1,
    ) -> rx.Expr:
        dtype = dtype_of(lhs)
        result = function(
            _real(lhs, lhs_scale, lhs_zero_point, lhs_axis, _floats(dtype)),
            _real(rhs, rhs_scale, rhs_zero_point, rhs_axis, _floats(dtype)),
        )
        return _integers(result, output_scale, output_zero_point, -1, dtype)

    return translate


@signature("data input_scales input_zero_points output_scale output_zero_point", axis=0)
def _concatenate(o: Any) -> rx.Expr:
    operands = [fields_of(operand) for operand in (o.data, o.input_scales, o.input_zero_points)]
    counts = {len(fields) for fields in operands}
    if len(counts) > 1 or 0 in counts:
        raise RelationError("there is a scale and a zero point for each of one or more tensors")
    dtype = dtype_of(operands[0][0])
    triples = zip(*operands, strict=True)
    numbers = [_real(x, s, z, dtype=_floats(dtype)) for x, s, z in triples]
    return _integers(R.concat(numbers, o.axis), o.output_scale, o.output_zero_point, -1, dtype)


def _product(name: str) -> Any:
    """The product of integers without their zero points; the scales are the caller's."""

    def translate(
        x: rx.Expr,
        y: rx.Expr,
        x_zero_point: rx.Expr,
        y_zero_point: rx.Expr,
        x_scale: rx.Expr,
        y_scale: rx.Expr,
        *,
        out_dtype: Any,
        **attrs: Any,
    ) -> rx.Expr:
        channels = max(attrs.get("kernel_layout", "").find("O"), 0)
        offsets = [
            R.subtract(R.astype(data, "int32"), _along(zero_point, data, axis, "int32"))
            for data, zero_point, axis in ((x, x_zero_point, 0), (y, y_zero_point, channels))
        ]
        return _plain(name, *offsets, **attrs, out_dtype=out_dtype or "int32")

    return translate


_PARAMETERS: Final = "input_zero_point kernel_zero_point input_scale kernel_scale"
define_all({f"qnn.{name}": _binary(getattr(R, op)) for name, op in
            (("add", "add"), ("subtract", "subtract"), ("mul", "multiply"))})  # fmt: skip
define("qnn.concatenate", _concatenate)
_BATCHES: Final = {"out_dtype": "int32", "transpose_a": False, "transpose_b": True}
for _name, _operands, _given, _required in (
    ("conv2d", f"data kernel {_PARAMETERS}", {"kernel_size": None, "channels": None},
     ("kernel_size", "channels")),
    ("conv2d_transpose", f"data weight {_PARAMETERS}", {}, ()),
    ("dense", f"data weight {_PARAMETERS}", {"units": REQUIRED}, ()),
    ("batch_matmul", "", _BATCHES, ()),
):  # fmt: skip
    _plain_attributes = Op.get(f"nn.{_name}").record.attributes
    define(
        f"qnn.{_name}",
        _product(f"nn.{_name}"),
        _operands,
        {**_given, **_plain_attributes, "out_dtype": "int32", **_given},
        makers=dict.fromkeys(_required, REQUIRED),
    )
