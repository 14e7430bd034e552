"""Sequences of different lengths, slices and indices as tensor expressions."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.shapes import as_sizes, normal_axis, product, shape_text
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = ["dynamic_strided_slice", "reverse_sequence", "shape", "tensor_size", "unravel_index"]


def _index(value: ExprLike) -> PrimExpr:
    return ops.cast_to(value, "int64")


def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """Reverse the first elements of each sequence; its length says how many.

    A length that exceeds the size counts as the size; one below 1 reverses nothing.

    Errors:
        MisuseError: the lengths are not a vector, or an axis is out of range or used twice.
    """
    along, batch = normal_axis(seq_axis, a.ndim), normal_axis(batch_axis, a.ndim)
    if seq_lengths.ndim != 1 or along == batch:
        raise MisuseError(
            f"reverse_sequence takes a vector of lengths and two axes, found rank "
            f"{seq_lengths.ndim} and axes {seq_axis} and {batch_axis}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        i, one = _index(index[along]), ops.const(1, "int64")
        length = ops.minimum(_index(seq_lengths(index[batch])), _index(a.shape[along]))
        is_reversed = ops.compare(tir.LT, i, length)
        source = intrin.if_then_else(is_reversed, ops.sub(ops.sub(length, one), i), i)
        return a(*index[:along], source, *index[along + 1 :])

    return injective(a.shape, element, "T_reverse_sequence")


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[ExprLike]
) -> Tensor:
    """Every stride-th element along each axis from `begin` on, of shape `output_shape`.

    A first index past the end of an axis is clamped to its last element; `end` is not used.

    Errors:
        MisuseError: there is not one bound and size for each axis.
    """
    sizes = as_sizes(output_shape)
    if len(sizes) != a.ndim or any(bound.ndim != 1 for bound in (begin, end, strides)):
        raise MisuseError(
            f"dynamic_strided_slice takes vectors of bounds and {a.ndim} sizes, found ranks "
            f"{begin.ndim}, {end.ndim} and {strides.ndim} and shape {shape_text(sizes)}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        source = []
        for axis, (i, size) in enumerate(zip(index, a.shape, strict=True)):
            k = ops.const(axis, "int64")
            first = ops.minimum(_index(begin(k)), ops.sub(size, _index(1)))
            source.append(ops.add(first, ops.mul(i, _index(strides(k)))))
        return a(*source)

    return injective(sizes, element, "T_dynamic_strided_slice")


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """The index of the element at each row-major position in a shape, along the first axis.

    Errors:
        MisuseError: the indices have rank 2 or more, or the shape is not a vector of known length.
    """
    if indices.ndim > 1 or shape.ndim != 1 or not isinstance(shape.shape[0], tir.IntImm):
        raise MisuseError(
            f"unravel_index takes a scalar or vector and a vector of known length, found shapes "
            f"{shape_text(indices.shape)} and {shape_text(shape.shape)}"
        )
    rank = shape.shape[0].value

    def element(*index: PrimExpr) -> PrimExpr:
        position: PrimExpr = indices(*index[1:])
        digits: list[PrimExpr] = []
        for axis in range(rank - 1, -1, -1):
            size = ops.cast_to(shape(ops.const(axis, "int64")), position.dtype)
            digits.append(ops.floormod(position, size))
            position = ops.floordiv(position, size)
        value = digits[-1]
        for axis, digit in enumerate(reversed(digits[:-1]), start=1):
            is_axis = ops.compare(tir.EQ, index[0], ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, digit, value)
        return value

    return injective((shape.shape[0], *indices.shape), element, "T_unravel")


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The shape of a tensor as a vector."""

    def element(i: PrimExpr) -> PrimExpr:
        value: PrimExpr = ops.const(0, dtype)
        for axis, size in enumerate(array.shape):
            is_axis = ops.compare(tir.EQ, i, ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, ops.cast_to(size, dtype), value)
        return value

    return injective((ops.const(array.ndim, "int64"),), element, "T_shape")


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements of a tensor, as a tensor of rank 0."""
    count = ops.cast_to(product(array.shape), DataType(dtype))
    return injective((), lambda: count, "ndarray_size")
