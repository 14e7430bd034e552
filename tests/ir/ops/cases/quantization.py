"""Quantisation, its inverse, and parameters in another datatype."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers

RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "float8_e4m3fn": (-448.0, 448.0),
    "float8_e5m2": (-57344.0, 57344.0),
}


def _chosen(parameter: Array, index: tuple[int, ...], axis: int) -> float:
    return float(parameter.flat[0] if parameter.size == 1 else parameter[index[axis]])


def quantized(x: Array, scale: Array, zero: Array, axis: int = -1, out: str = "int8") -> Array:
    low, high = RANGES[out]
    made = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        value = float(x[index] / _chosen(scale, index, axis))
        if "int" in out and np.isfinite(value):
            value = float(round(value))
        made[index] = min(max(value + _chosen(zero, index, axis), low), high)
    return made.astype(out)


def dequantized(x: Array, scale: Array, zero: Array, axis: int = -1) -> Array:
    made = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        made[index] = (float(x[index]) - _chosen(zero, index, axis)) * _chosen(scale, index, axis)
    return made


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def cases() -> Iterator[Case]:
    yield from _quantized()
    yield from _dequantized()
    x = floats(3, 4)
    for label, value in (("ints", integers(3, 4)), ("float16", x.astype("float16"))):
        yield case("wrap_param", label, (value,), lambda v: v)
    yield case("wrap_param", "to int8", (x,), np.trunc, "int8")


def _quantized() -> Iterator[Case]:
    x = floats(3, 4) * 20
    zero = integers(3, dtype="int8")
    scales = np.array([0.5, 0.25, 4], "float32")

    def case(label: str, inputs: tuple[Array, ...], **attrs: Any) -> Case:
        names = {"out_dtype": "out"}
        given = {names.get(k, k): v for k, v in attrs.items()}
        return Case(
            "relax.quantize",
            label,
            inputs,
            lambda *v: op.quantize(*v, **attrs),
            lambda *v: quantized(*v, **given),
        )

    for out in RANGES:
        if "int" in out:
            kind = "int32" if out == "uint16" else out
            middle = scalar(RANGES[out][0] / 2 + 3, kind)
            yield case(f"to {out}", (x * 10, scalar(0.25), middle), out_dtype=out)
    yield case("rows", (x, scales, zero), axis=0)
    yield case("columns", (x, floats(4, seed=2) + 9, integers(4, dtype="int8")), axis=1)
    yield case("one scale", (x, scales[:1], zero), axis=-2)
    yield case("one zero point", (x.T.copy(), scales, zero[:1]))
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 127.5, -128.5], "float32")
    yield case("halves", (halves, scalar(1), scalar(0, "int8")))
    yield case("infinite", (SPECIAL[1:3], scalar(1), scalar(3, "int8")))
    yield case("saturated", (x * 1e6, scalar(1), scalar(-5, "int8")))
    half = (x.astype("float16"), scalar(0.5, "float16"), scalar(2, "float16"))
    yield case("float16", half)
    yield case("a scalar", (scalar(7.3), scalar(0.5), scalar(1, "int8")))
    yield case("nothing", (x[:0], scales[:0], zero[:0]), axis=0)


def _dequantized() -> Iterator[Case]:
    scales = np.array([0.5, 0.25, 3.7], "float32")
    zero = integers(3, dtype="int8")

    def case(label: str, inputs: tuple[Array, ...], **attrs: Any) -> Case:
        return Case(
            "relax.dequantize",
            label,
            inputs,
            lambda *v: op.dequantize(*v, **attrs),
            lambda *v: dequantized(*v, attrs.get("axis", -1)),
            only=("values",) if "out_dtype" in attrs else (),  # which end at those of float16
            smooth="out_dtype" not in attrs,  # gradients of float16 are too coarse to compare
        )

    for dtype in ("int8", "uint8", "int16", "uint16", "int32"):
        x = integers(3, 4, dtype=dtype, low=0, high=100)
        yield case(dtype, (x, scalar(0.37), scalar(5, dtype)))
    x = integers(3, 4, dtype="int8")
    yield case("rows", (x, scales, zero), axis=0)
    yield case("columns", (x.T.copy(), scales, zero))
    yield case("one scale", (x, scales[:1], zero), axis=-2)
    yield case("one zero point", (x, scales, zero[:1]), axis=0)
    extremes = np.array([-(2**31), 2**31 - 1, 0], "int32")
    yield case("far ints", (extremes, scalar(1e-3), scalar(2**31 - 1, "int32")))
    yield case("floats", (floats(3, 4), scales, floats(3, seed=1)), axis=0)
    yield case("floats of vectors", (floats(2, 3, 2), scales, floats(1, seed=1)), axis=1)
    yield case("of one axis", (floats(3), scales, floats(3, seed=1)))
    yield case("a scalar", (scalar(7, "int8"), scalar(0.5), scalar(1, "int8")))
    yield case("float16", (x, scales.astype("float16"), zero), axis=0, out_dtype="float16")
    yield case("nothing", (x[:0], scales[:0], zero[:0]), axis=0)
