"""Group quantisation: the definition of packed weights, in NumPy and as a tensor expression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from relaxpy.errors import MisuseError, UnknownNameError, check_type, close_names, unexpected
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.tir import ops, reduce
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select
from relaxpy.ir.tir.intrin import abs as intrin_abs, infinity, isfinite, isnan, nearbyint
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

_WORD: Final = 32
"""The bits of an element of packed weights, `uint32`."""
_BLOCK: Final = 1 << 16
"""The elements that are rounded at a time.

Their arrays stay in the cache of a core.
"""
_MOST: Final = ops.const(127.0, "float32")
_LONGEST: Final = (2**31 - 1) // 127**2
"""The number of products of integers in [-127, 127] whose sum fits int32."""


@dataclass(frozen=True)
class Quantization:
    """Weights as integers of `bits` bits, with one scale for each `group` elements of a row.

    With `m = 2**(bits - 1) - 1`, a group of weights `w` has the scale `s = max(abs(w)) / m`,
    rounded to `dtype`, and the integers `q = round(w / s)` from -m to m: `w / s` in float32, halves
    to even, 0 where `s` is 0. The weights that a program computes with are `q * s`, in `dtype`.

    Rows are along the last axis; the last group of a row may be shorter. `q + m` are stored in
    words of 32 bits, `32 // bits` in each, the first one in the lowest bits, and each group begins
    with a word. If `group` is 0, a group is a row, and `q` are stored as int8. If `bits` is 0,
    weights are stored as `dtype`, and nothing else.

    With `rounds_operands` products are those of integers: a row `x` of the other operand has the
    scale `t = max(abs(x)) / 127` in float32 and the integers `p = round(x / t)`, as weights have
    them. The product is `sum(sum(p * q) * s) * t`, the inner sum that of a group, in int32, which
    is exact, and the rest in float32. It is NaN if the row has a number that is not finite.

    Errors:
        MisuseError (also ValueError): there are no such integers, a group does not end with a word,
            scales are no floats, or operands are rounded, but weights are not packed.
    """

    name: str
    bits: int
    group: int
    dtype: str
    rounds_operands: bool = False

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in {0, *range(2, 9)}:
            raise MisuseError(
                f"packed weights have 2 to 8 bits, and others 0, found {self.bits!r:.60}",
                about=self.bits,
            )
        if type(self.group) is not int or self.group < 0 or self.group % self.per_word:
            raise MisuseError(
                f"a group is a multiple of {self.per_word} weights of {self.bits} bits, or 0 for a "
                f"row, found {self.group!r:.60}",
                about=self.group,
            )
        if not DataType(self.dtype).is_float:
            raise MisuseError(f"scales are floats, found {self.dtype}", about=self.dtype)
        if self.rounds_operands and not self.is_packed:
            raise MisuseError("operands are rounded for packed weights only", about=self.bits)

    @property
    def is_packed(self) -> bool:
        """True if weights are integers and scales, and not just of another datatype."""
        return self.bits > 0

    @property
    def storage_dtype(self) -> str:
        """The datatype of the elements in memory."""
        if not self.is_packed:
            return self.dtype
        return "uint32" if self.group else "int8"

    @property
    def greatest(self) -> int:
        """The largest integer, `m`."""
        return (1 << (self.bits - 1)) - 1

    @property
    def per_word(self) -> int:
        """The number of weights in an element in memory."""
        return _WORD // self.bits if self.group and self.bits else 1

    def row_sizes(self, size: int) -> tuple[int, int]:
        """The elements in memory, and the scales, of a row of `size` weights."""
        if not self.group:
            return size, 1
        groups = -(-size // self.group)
        return groups * (self.group // self.per_word), groups

    @user_facing
    def quantize(self, weight: Array) -> tuple[Array, Array]:
        """The integers of a float array as memory has them, and the scales.

        Errors:
            MisuseError (also TypeError, ValueError): it is not an array of finite floats of rank 1
                or more, or has a scale beyond `dtype`, or the weights are not packed.
        """
        self._check(weight)
        length, (words, groups) = weight.shape[-1], self.row_sizes(weight.shape[-1])
        rows = weight.reshape(math.prod(weight.shape[:-1]), length)
        packed = np.empty((len(rows), words), "uint32" if self.group else "int8")
        scale = np.empty((len(rows), groups), self.dtype)
        step = max(_BLOCK // max(length, 1), 1)
        shared = np.empty(step * (words * self.per_word), "float32")
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            for first in range(0, len(rows), step):
                block = slice(first, first + step)
                packed[block], scale[block] = self._quantized(rows[block], shared)
        if not np.isfinite(scale).all():
            raise MisuseError(f"weights are finite, and their scales in {self.dtype}", about=weight)
        outer = weight.shape[:-1]
        return packed.reshape(*outer, words), scale.reshape(*outer, groups)

    def _quantized(self, rows: Array, shared: Array) -> tuple[Array, Array]:
        """The integers and the scales of some rows, which may not be finite.

        Blocks have `shared` memory for their elements.
        """
        (number, size), (_, count) = rows.shape, self.row_sizes(rows.shape[-1])
        width = self.group or size
        if size != count * width or rows.dtype != "float32":
            padded = np.zeros((number, count * width), "float32")
            padded[:, :size] = rows
            rows = padded
        groups, shared = rows.reshape(number * count, width), shared[: rows.size]
        # Extremes of columns take half of the time of those of short rows.
        columns = np.abs(groups.T, out=shared.reshape(width, number * count))
        largest = columns.max(axis=0, initial=0).reshape(number, count)
        scale = (largest / np.float32(self.greatest)).astype(self.dtype)
        divisor = scale.astype("float32").reshape(largest.shape)
        integers = np.divide(groups, divisor.reshape(-1, 1), out=shared.reshape(groups.shape))
        np.rint(integers, out=integers)
        if not divisor.all():
            np.copyto(integers, 0, where=divisor.reshape(-1, 1) == 0)
        if (np.rint(largest / divisor) > self.greatest).any():  # since the scale is rounded
            np.clip(integers, -self.greatest, self.greatest, out=integers)
        if not self.group:
            return integers.reshape(number, size).astype("int8"), scale
        integers += np.float32(self.greatest)
        return self._words(integers).reshape(number, -1), scale

    def _words(self, integers: Array) -> Array:
        """The elements in memory for integers from 0 on, which are floats."""
        if _WORD % self.bits:
            parts = integers.reshape(-1, self.per_word)
            # These sums are exact, as an element has fewer bits than a float64.
            words = parts @ np.exp2(self.bits * np.arange(self.per_word))
            return words.astype("uint32")
        # So are the sums of half an element in float32.
        parts = integers.reshape(-1, self.per_word // 2)
        sums = parts @ np.exp2(self.bits * np.arange(self.per_word // 2), dtype="float32")
        return sums.astype("<u2").view("<u4").astype("uint32", copy=False)

    @user_facing
    def dequantize(self, packed: Array, scale: Array, size: int) -> Array:
        """The weights that programs compute with: rows of `size` elements."""
        count, groups = self.row_sizes(size)
        if packed.shape[-1:] != (count,) or scale.shape != (*packed.shape[:-1], groups):
            raise MisuseError(
                f"rows of {size} weights have {count} elements and {groups} scales, found shapes "
                f"{packed.shape} and {scale.shape}",
                about=packed,
            )
        if not self.group:
            return packed.astype(self.dtype) * scale
        shifts = np.arange(self.per_word, dtype="uint32") * np.uint32(self.bits)
        words = (packed[..., None] >> shifts) & np.uint32((1 << self.bits) - 1)
        integers = words.reshape(*packed.shape[:-1], -1)[..., :size].astype(self.dtype)
        scales = np.repeat(scale, self.group, axis=-1)[..., :size]
        weights: Array = (integers - np.asarray(self.greatest, self.dtype)) * scales
        return weights

    def decoded(self, packed: Tensor, scale: Tensor, size: int, dtype: str | None = None) -> Tensor:
        """The weights that programs compute with, as `dtype` if that is passed."""

        def weight(*indices: PrimExpr) -> PrimExpr:
            value = self.weight(packed, scale, *indices)
            return value if dtype is None else value.astype(dtype)

        result: Tensor = compute((*packed.shape[:-1], size), weight, name="dequantize")
        return result

    def weight(self, packed: Tensor, scale: Tensor, *indices: PrimExpr) -> PrimExpr:
        """One of the weights that programs compute with."""
        *row, index = indices
        if not self.group:
            return packed(*indices).astype(self.dtype) * scale(*row, 0)
        place = (index % self.per_word).astype("uint32")
        word = packed(*row, index // self.per_word)
        shift = place * ops.const(self.bits, "uint32")
        mask = ops.const((1 << self.bits) - 1, "uint32")
        integer = ((word >> shift) & mask).astype(self.dtype)
        centred = integer - ops.const(self.greatest, self.dtype)
        return centred * scale(*row, index // self.group).astype(self.dtype)

    def product(self, packed: Tensor, scale: Tensor, x: Tensor, size: int) -> Tensor:
        """`x @ weight^T` of matrices, where weights are decoded when they are read."""
        k = reduce_axis((0, size), "k")

        def element(row: PrimExpr, column: PrimExpr) -> PrimExpr:
            weight = self.weight(packed, scale, column, k.var)
            total: PrimExpr = reduce.sum(x(row, k) * weight, k)
            return total

        result: Tensor = compute((x.shape[0], packed.shape[0]), element, name="matmul")
        return result

    def factors(self, packed: Tensor, scale: Tensor, size: int) -> Tensor:
        """The weights by which `rounds_operands` multiplies, with scales, in float32."""
        return replace(self, dtype="float32").decoded(packed, scale, size)

    def _check(self, weight: object) -> None:
        if not self.is_packed:
            raise MisuseError(f"weights of {self.name} are not packed", hint="use astype")
        if not isinstance(weight, np.ndarray) or not weight.ndim:
            raise unexpected(weight, "weights are an array")
        if not DataType(weight.dtype).is_float:
            raise MisuseError(f"weights are floats, found {weight.dtype}", about=weight)


def rounded_rows(x: Tensor) -> list[Tensor]:
    """The integers of the rows of an operand, and their scales, (..., 1), by `rounds_operands`.

    Errors:
        MisuseError (also ValueError): sums over rows of this size may not fit int32.
    """
    *rows, size = x.shape
    if isinstance(size, IntImm) and size.value > _LONGEST:
        raise MisuseError(
            f"products of integers add at most {_LONGEST} of them, found rows of {size.value}",
            about=size.value,
        )
    k, infinite = reduce_axis((0, size), "k"), infinity("float32")

    def magnitude(value: PrimExpr) -> PrimExpr:
        return Select(isnan(value), infinite, intrin_abs(value))

    top = compute(
        rows, lambda *row: reduce.max(magnitude(x(*row, k).astype("float32")), k), name="top"
    )
    scale = compute((*rows, 1), lambda *at: ops.div(top(*at[:-1]), _MOST), name="scale")

    def integer(*at: PrimExpr) -> PrimExpr:
        ratio = ops.div(x(*at).astype("float32"), scale(*at[:-1], 0))
        near = ops.maximum(ops.minimum(nearbyint(ratio), _MOST), -_MOST)
        return Select(isfinite(ratio), near, ops.const(0.0, "float32")).astype("int8")

    return [compute(x.shape, integer, name="integers"), scale]


def scaled_sums(
    sums: Tensor, row_scale: Tensor, scale: Tensor | None = None, *, dtype: str
) -> Tensor:
    """Dequantised matmul results: integer sums times the scales of rows and of weights.

    The scales of weights may be in the sums already.
    """

    def product(*at: PrimExpr) -> PrimExpr:
        value = sums(*at).astype("float32")
        if scale is not None:
            value = value * scale(at[-1], 0).astype("float32")
        return (value * row_scale(*at[:-1], 0)).astype(dtype)

    result: Tensor = compute(sums.shape, product, name="scaled")
    return result


_DTYPES: Final = {"f16": "float16", "f32": "float32"}
#: The known quantisations by their names.
QUANTIZATIONS: Final[Mapping[str, Quantization]] = {
    q.name: q
    for short, dtype in _DTYPES.items()
    for q in (
        Quantization(f"q0{short}", 0, 0, dtype),
        Quantization(f"q3{short}_1", 3, 40, dtype),
        Quantization(f"q4{short}_1", 4, 32, dtype),
        Quantization(f"q8{short}_1", 8, 32, dtype),
        Quantization(f"int8{short}", 8, 0, dtype),
        Quantization(f"w8a8{short}", 8, 0, dtype, rounds_operands=True),
        Quantization(f"w4a8{short}", 4, 32, dtype, rounds_operands=True),
    )
}


def as_quantization(quantization: str | Quantization) -> Quantization:
    """The quantisation of that name.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is none of that name.
        MisuseError (also TypeError): it is not a name.
    """
    if isinstance(quantization, Quantization):
        return quantization
    check_type(quantization, str, "a quantisation is a name or a Quantization")
    if quantization not in QUANTIZATIONS:
        raise UnknownNameError(
            f"unknown quantisation {quantization!r}",
            hint=close_names(quantization, QUANTIZATIONS) or f"known: {', '.join(QUANTIZATIONS)}",
        )
    return QUANTIZATIONS[quantization]
