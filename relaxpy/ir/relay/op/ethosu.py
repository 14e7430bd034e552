"""Operators of the processors Ethos-U, `contrib.ethosu`: they have types and texts, and do not run.

A feature map has the layout NHWC, or NHCWB16, where channels are in bricks of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relay.op.registry import REQUIRED, Op, OpRecord
from relaxpy.ir.relay.op.relations import RelationError, relation_of
from relaxpy.ir.relay.ty import TensorType, Type

_REFUSAL: Final = (
    "it is a command of the processor Ethos-U, which reads packed scales and tables; "
    "qnn operators compute the same from tensors"
)
_BYTES: Final = ("uint8", "int8")
_WIDE: Final = (*_BYTES, "int32")
_LAYOUTS: Final = {"NHWC": 4, "NHCWB16": 5}


def _tensor(ty: Type, name: str, dtypes: Sequence[str]) -> TensorType:
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        raise RelationError(f"{name} is a tensor of known rank, found {ty}")
    if str(ty.dtype) not in dtypes:
        raise RelationError(f"{name} has the datatype {' or '.join(dtypes)}, found {ty}")
    return ty


def _map(ty: Type, name: str, layout: Any, dtypes: Sequence[str]) -> tuple[TensorType, list[Any]]:
    """Return a feature map, and its number of images, height and width."""
    known = _tensor(ty, name, dtypes)
    shape = known.shape
    assert isinstance(shape, tuple)
    if layout not in _LAYOUTS or len(shape) != _LAYOUTS[layout]:
        raise RelationError(
            f"{name} has the layout NHWC, of 4 dimensions, or NHCWB16, of 5, found {layout!r} "
            f"and {known}"
        )
    return known, [shape[0], shape[1], shape[2 if layout == "NHWC" else 3]]


def _result(sizes: Sequence[Any], channels: Any, layout: Any, dtype: str) -> TensorType:
    if type(channels) is not int or channels < 1:
        raise RelationError(f"the number of channels is positive, found {channels!r:.60}")
    images, height, width = sizes
    if layout not in _LAYOUTS:
        raise RelationError(f"ofm_layout is NHWC or NHCWB16, found {layout!r}")
    if layout == "NHWC":
        return TensorType((images, height, width, channels), DataType(dtype))
    return TensorType((images, height, -(-channels // 16), width, 16), DataType(dtype))


def _one_of(attrs: Attrs, name: str, values: Sequence[str]) -> str:
    value = str(attrs[name])
    if value not in values:
        raise RelationError(f"{name} is {' or '.join(values)}, found {value!r}")
    return value


def _kernel_sizes(sizes: list[Any], attrs: Any, kernel: str) -> list[Any]:
    """Return the sizes of what a kernel computes of a feature map."""
    shape, padding = attrs[kernel], attrs["padding"]
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise RelationError(f"{kernel} is two numbers, found {shape!r:.60}")
    if not isinstance(padding, tuple) or len(padding) != 4:
        raise RelationError(f"padding is four numbers, found {padding!r:.60}")
    result = [sizes[0]]
    for axis in (0, 1):
        step, spread = attrs["strides"][axis], attrs.get("dilation", (1, 1))[axis]
        reach = 1 + (shape[axis] - 1) * spread
        size = sizes[1 + axis]
        if isinstance(size, int):
            size = (size + padding[axis] + padding[2 + axis] - reach) // step + 1
        result.append(size)
    return result


def _weighted(types: Sequence[Type], attrs: Any, dtype: str, channels: Any) -> Type:
    """Check the weight and the scales of a convolution, and return its result."""
    layout = attrs["ifm_layout"]
    ifm, sizes = _map(types[0], "ifm", layout, (*_BYTES, "int16") if dtype else _BYTES)
    weight = _tensor(types[1], "weight", _BYTES)
    count, kernel = attrs["ofm_channels"], attrs["kernel_shape"]
    sizes = _kernel_sizes(sizes, attrs, "kernel_shape")
    shape = weight.shape
    assert isinstance(shape, tuple)
    last = shape[-1] if channels is None and len(shape) == 4 else channels
    if shape != (count, *kernel, last):
        raise RelationError(f"weight has the shape {(count, *kernel, last)}, found {weight}")
    scales = _tensor(types[2], "scale_bias", ("uint8",))
    if scales.shape != (count, 10):
        raise RelationError(f"scale_bias has the shape {(count, 10)}, found {scales}")
    return _result(sizes, count, attrs["ofm_layout"], dtype or str(ifm.dtype))


def _conv2d(types: Sequence[Type], attrs: Any) -> Type:
    return _weighted(types, attrs, "", None)


def _depthwise(types: Sequence[Type], attrs: Any) -> Type:
    dtype = _one_of(attrs, "ofm_dtype", ("int8", "uint8", "int16", "int32"))
    return _weighted(types, attrs, dtype, 1)


def _pooling(types: Sequence[Type], attrs: Any) -> Type:
    kind = _one_of(attrs, "pooling_type", ("AVG", "MAX", "SUM"))
    dtypes = _WIDE if kind == "SUM" else (*_BYTES, "int16")
    ifm, sizes = _map(types[0], "ifm", attrs["ifm_layout"], dtypes)
    dtype = str(attrs["ofm_dtype"]) or str(ifm.dtype)
    sizes = _kernel_sizes(sizes, attrs, "pool_shape")
    return _result(sizes, attrs["ofm_channels"], attrs["ofm_layout"], dtype)


def _identity(types: Sequence[Type], attrs: Any) -> Type:
    ifm = _tensor(types[0], "ifm", (*_BYTES, "int16", "int32"))
    assert isinstance(ifm.shape, tuple)
    if len(ifm.shape) > 4:
        raise RelationError(f"ifm has at most 4 dimensions, found {ifm}")
    return ifm


def _unary(types: Sequence[Type], attrs: Any) -> Type:
    kind = _one_of(attrs, "operator_type", ("ABS", "CLZ"))
    dtypes = ("int32",) if kind == "CLZ" else _BYTES
    ifm, sizes = _map(types[0], "ifm", attrs["ifm_layout"], dtypes)
    return _result(sizes, attrs["ofm_channels"], attrs["ofm_layout"], str(ifm.dtype))


#: The datatypes of the operands and of the result.
_BINARY: Final[dict[str, tuple[Sequence[str], Sequence[str]]]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL"), (_WIDE, _WIDE)),
    **dict.fromkeys(("MIN", "MAX"), (_BYTES, _BYTES)),
    "SHR": (("int32",), _WIDE),
    "SHL": (("int32",), ("int32",)),
}


def _binary(types: Sequence[Type], attrs: Any) -> Type:
    operands, results = _BINARY[_one_of(attrs, "operator_type", tuple(_BINARY))]
    ifm, sizes = _map(types[0], "ifm", attrs["ifm_layout"], operands)
    other, _ = _map(types[1], "ifm2", attrs["ifm2_layout"], _WIDE)
    dtype = _one_of(attrs, "ofm_dtype", results)
    assert isinstance(other.shape, tuple)
    is_scalar = str(other.dtype) == "uint8" and all(size == 1 for size in other.shape)
    if other.dtype != ifm.dtype and not is_scalar:
        raise RelationError(f"ifm2 has the datatype of ifm, {ifm.dtype}, found {other}")
    if attrs["operator_type"] in ("MIN", "MAX") and dtype != str(ifm.dtype):
        raise RelationError(f"ofm_dtype is that of ifm, {ifm.dtype}, found {dtype}")
    return _result(sizes, attrs["ifm_channels"], attrs["ofm_layout"], dtype)


_SCALES: Final = dict.fromkeys(
    ("ifm_scale", "ifm_zero_point", "ofm_scale", "ofm_zero_point"), REQUIRED
)
_ACTIVATION: Final = {"activation": "NONE", "clip_min": 0, "clip_max": 0, "rounding_mode": "TFL"}
_IN_OUT: Final = {"ifm_layout": "NHWC", "ofm_layout": "NHWC"}
_WINDOW: Final = {"strides": (1, 1), "padding": (0, 0, 0, 0), "upscale": "NONE"}
_CONVOLUTION: Final[dict[str, object]] = {
    **_SCALES,
    "weight_zero_point": REQUIRED,
    "kernel_shape": None,
    "ofm_channels": None,
    "dilation": (1, 1),
    **_WINDOW,
    **_ACTIVATION,
    **_IN_OUT,
}
_Table = dict[str, tuple[str, Callable[[Sequence[Type], Any], Type], Mapping[str, object]]]
_OPERATORS: Final[_Table] = {
    "conv2d": ("ifm weight scale_bias lut", _conv2d, _CONVOLUTION),
    "depthwise_conv2d": (
        "ifm weight scale_bias lut",
        _depthwise,
        {**_CONVOLUTION, "ofm_dtype": "int8"},
    ),
    "pooling": (
        "ifm lut",
        _pooling,
        {
            "pooling_type": REQUIRED,
            **_SCALES,
            "pool_shape": None,
            "ofm_channels": None,
            "ofm_dtype": "",
            **_WINDOW,
            **_ACTIVATION,
            **_IN_OUT,
        },
    ),
    "identity": ("ifm lut", _identity, {**_SCALES, "activation": "NONE", "rounding_mode": "TFL"}),
    "unary_elementwise": (
        "ifm lut",
        _unary,
        {"operator_type": REQUIRED, **_SCALES, "ofm_channels": REQUIRED, **_ACTIVATION, **_IN_OUT},
    ),
    "binary_elementwise": (
        "ifm ifm2 lut",
        _binary,
        {
            "operator_type": REQUIRED,
            **_SCALES,
            "ifm2_scale": REQUIRED,
            "ifm2_zero_point": REQUIRED,
            "ifm_channels": REQUIRED,
            "ifm2_channels": REQUIRED,
            "reversed_operands": False,
            **_ACTIVATION,
            **_IN_OUT,
            "ifm2_layout": "NHWC",
            "ofm_dtype": REQUIRED,
            "use_rescale": False,
            "rescale_scale": 0,
            "rescale_shift": 0,
        },
    ),
}
for _name, (_operands, _type_of, _attributes) in _OPERATORS.items():
    _record = OpRecord(
        f"contrib.ethosu.{_name}",
        tuple(_operands.split()),
        attributes=_attributes,
        relation=relation_of(_type_of),
        refusal=_REFUSAL,
    )
    Op.enter(_record)
