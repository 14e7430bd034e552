"""Products of integers of few bits: `nn.bitpack`, `nn.bitserial_dense` and `nn.bitserial_conv2d`.

Packed bits are taken apart again, and the products are those of Relax: the words stand for what
other hardware computes with, and the results are the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, define, dims, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError

_WORDS: Final = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def _width(dtype: Any) -> int:
    """Return the number of bits of a word.

    Errors:
        RelationError: the datatype is not one of words.
    """
    if str(dtype) not in _WORDS:
        raise RelationError(f"words are {', '.join(_WORDS)}, found {str(dtype) or None!r}")
    return _WORDS[str(dtype)]


def _bits(value: Any, name: str) -> int:
    if type(value) is not int or not 0 < value <= 8:
        raise RelationError(f"{name} is between 1 and 8, found {value!r:.60}")
    return value


def _axis(value: int, rank: int, name: str) -> int:
    if not -rank <= value < rank:
        raise RelationError(f"{name} is out of range for {rank} dimensions, found {value}")
    return value % rank


def _require_integers(data: rx.Expr, name: str) -> None:
    if not dtype_of(data).startswith(("int", "uint")):
        raise RelationError(f"{name} has integers, found {data.struct_info}")


def _divided(size: Any, width: int) -> int:
    if size % width:
        raise RelationError(f"the size of the packed axis is a multiple of {width}, found {size}")
    return int(size // width)


def _bitpack(args: Args, attrs: Any) -> rx.Expr:
    """Words of bit 0, of bit 1, …: the first element has the highest bit of a word."""
    data = args[0]
    _require_integers(data, "data")
    shape, dtype = known_shape(data), str(attrs["pack_type"])
    width, count = _width(dtype), _bits(attrs["bits"], "bits")
    axis = _axis(int(attrs["pack_axis"]), len(shape), "pack_axis")
    place = _axis(int(attrs["bit_axis"]), len(shape) + 1, "bit_axis")
    split = [*shape[:axis], _divided(shape[axis], width), width, *shape[axis + 1 :]]
    kind = dtype_of(data)
    positions = rx.Constant(np.arange(count, dtype=kind))
    shifted = R.right_shift(R.reshape(data, (*split, 1)), positions)
    single = R.astype(R.bitwise_and(shifted, number(1, kind)), dtype)
    order = rx.Constant(np.arange(width - 1, -1, -1).astype(dtype))
    aligned = R.reshape(order, (width, *[1] * (len(split) - axis - 1)))
    words = R.sum(R.left_shift(single, aligned), [axis + 1])
    axes = list(range(len(shape)))
    return R.permute_dims(words, [*axes[:place], len(shape), *axes[place:]])


define(
    "nn.bitpack",
    "data",
    _bitpack,
    {"bits": 1, "pack_axis": 1, "bit_axis": -1, "pack_type": REQUIRED, "name": "BitPack"},
    makers={"bit_axis": 2, "pack_type": "uint32"},
)


def _unpacked(words: rx.Expr, axis: int, bit_axis: int) -> tuple[rx.Expr, int]:
    """Return the integers (int32) of packed bits, and how many bits each has."""
    dtype, shape = dtype_of(words), known_shape(words)
    width, count = _width(dtype), shape[bit_axis]
    order = rx.Constant(np.arange(width - 1, -1, -1).astype(dtype))
    single = R.bitwise_and(R.right_shift(R.expand_dims(words, -1), order), number(1, dtype))
    weights = rx.Constant(1 << np.arange(count, dtype="int32"))
    aligned = R.reshape(weights, (count, *[1] * (len(shape) - bit_axis)))
    values = R.sum(R.multiply(R.astype(single, "int32"), aligned), [bit_axis])
    sizes = [size for k, size in enumerate(shape) if k != bit_axis]
    axes = list(range(len(sizes)))
    moved = R.permute_dims(values, [*axes[: axis + 1], len(sizes), *axes[axis + 1 :]])
    sizes[axis] *= width
    return R.reshape(moved, sizes), count


def _low_bits(data: rx.Expr, count: int) -> rx.Expr:
    """Return the lowest bits of integers, as int32."""
    kind = dtype_of(data)
    return R.astype(R.bitwise_and(data, number((1 << count) - 1, kind)), "int32")


def _weights(weight: rx.Expr, attrs: Any, rank: int, axis: int, bit_axis: int) -> rx.Expr:
    """Return the integers of a weight, packed or not, and signed if it is unipolar.

    A bit 0 of a unipolar weight stands for -1.
    """
    _require_integers(weight, "weight")
    count = _bits(attrs["weight_bits"], "weight_bits")
    found = len(dims(weight))
    if found == rank + 1:
        values, count = _unpacked(weight, axis, bit_axis)
    elif found == rank:
        _divided(known_shape(weight)[axis], _width(attrs["pack_dtype"]))
        values = _low_bits(weight, count)
    else:
        raise RelationError(f"the weight has {rank} dimensions, or {rank + 1} if it is packed")
    if not attrs["unipolar"]:
        return values
    doubled = R.multiply(values, number(2, "int32"))
    return R.subtract(doubled, number((1 << count) - 1, "int32"))


def _activations(data: rx.Expr, attrs: Any, name: str, axis: int) -> rx.Expr:
    _require_integers(data, "data")
    _divided(known_shape(data)[axis], _width(attrs["pack_dtype"]))
    return _low_bits(data, _bits(attrs[name], name))


def _require(actual: Any, expected: Any, name: str) -> None:
    if expected is not None and actual != expected:
        raise RelationError(f"{name} of the weight is {actual}, not {expected}")


def _bitserial_dense(args: Args, attrs: Any) -> rx.Expr:
    data = _activations(args[0], attrs, "data_bits", -1)
    weight = _weights(args[1], attrs, 2, 1, 1)
    _require(known_shape(args[1])[0], attrs["units"], "the number of units")
    product = R.matmul(data, R.permute_dims(weight), "int32")
    return R.astype(product, str(attrs["out_dtype"]) or dtype_of(args[0]))


define(
    "nn.bitserial_dense",
    "data weight",
    _bitserial_dense,
    {
        "units": None,
        "data_bits": 1,
        "weight_bits": 1,
        "pack_dtype": REQUIRED,
        "out_dtype": "",
        "unipolar": True,
    },
    makers={"pack_dtype": "uint32", "out_dtype": "int16"},
)
_LAYOUTS: Final = {"NCHW": ("OIHW", 1), "NHWC": ("HWIO", 3)}


def _bitserial_conv2d(args: Args, attrs: Any) -> rx.Expr:
    layout, kernel_layout = str(attrs["data_layout"]), str(attrs["kernel_layout"])
    if _LAYOUTS.get(layout, ("", 0))[0] != kernel_layout:
        raise RelationError(
            f"the layouts are NCHW and OIHW, or NHWC and HWIO, found {layout} and {kernel_layout}"
        )
    data = _activations(args[0], attrs, "activation_bits", _LAYOUTS[layout][1])
    channel = kernel_layout.index("I")
    weight = _weights(args[1], attrs, 4, channel, 4)
    shape = known_shape(args[1])
    _require(shape[kernel_layout.index("O")], attrs["channels"], "the number of channels")
    kernel = tuple(shape[kernel_layout.index(axis)] for axis in "HW")
    given = attrs["kernel_size"]
    _require(kernel, None if given is None else tuple(listed(given)), "the size")
    result = R.nn.conv2d(
        data,
        weight,
        strides=listed(attrs["strides"]),
        padding=listed(attrs["padding"]),
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype="int32",
    )
    return R.astype(result, str(attrs["out_dtype"]) or dtype_of(args[0]))


define(
    "nn.bitserial_conv2d",
    "data weight",
    _bitserial_conv2d,
    {
        "strides": (1, 1),
        "padding": (0, 0),
        "channels": None,
        "kernel_size": (3, 3),
        "activation_bits": 1,
        "weight_bits": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "pack_dtype": REQUIRED,
        "out_dtype": "",
        "unipolar": True,
    },
    makers={"pack_dtype": "uint32", "out_dtype": "int16"},
)
