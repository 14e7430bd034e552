"""Padding of tensors at the ends of axes, and dilation between elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.shapes import as_sizes, tidy
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.ops import is_const

__all__ = ["circular_pad", "dilate", "mirror_pad", "pad", "reflect_pad", "replicate_pad"]

Sources: TypeAlias = Callable[[PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr]]


def pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    pad_value: ExprLike = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """Pad the data with elements of one value before and after each axis.

    A negative width removes elements.

    Errors:
        MisuseError: a width is missing for an axis.
    """
    before, after = _widths(data, pad_before, pad_after, "pad")
    fill = ops.cast_to(pad_value, data.dtype)
    shape = list(map(_padded, data.shape, before, after))
    return injective(shape, lambda *i: element_of_pad(data, before, after, fill, i), name)


def element_of_pad(
    data: Tensor,
    before: Sequence[PrimExpr],
    after: Sequence[PrimExpr],
    fill: PrimExpr,
    index: Sequence[PrimExpr],
) -> PrimExpr:
    """The element of the padded data at an index."""
    is_inside, source = [], []
    for i, low, high, size in zip(index, before, after, data.shape, strict=True):
        if not (is_const(low, 0) and is_const(high, 0)):
            is_inside.append(i >= low)
            is_inside.append(i < low + size)
        source.append(i if is_const(low, 0) else i - low)
    value = data(*source)
    return intrin.if_then_else(ops.all_of(*is_inside), value, fill) if is_inside else value


def _widths(
    data: Tensor, before: Sequence[ExprLike], after: Sequence[ExprLike] | None, name: str
) -> tuple[tuple[PrimExpr, ...], tuple[PrimExpr, ...]]:
    """The widths before and after each axis; those after it are by default those before it."""
    low = as_sizes(before)
    high = low if after is None else as_sizes(after)
    for widths in (low, high):
        if len(widths) != data.ndim:
            raise MisuseError(f"{name}: {counted(len(widths), 'width')} for rank {data.ndim}")
    return low, high


def _padded(size: PrimExpr, low: PrimExpr, high: PrimExpr) -> PrimExpr:
    return tidy(size + low + high)


def _extended(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None,
    name: str,
    sources: Sources,
) -> Tensor:
    """Extend the data along the axes by elements of the same line.

    `sources` returns the source positions before and after an axis, for a position relative to its
    start and its size. Each stage stores up to nine slices, along two axes.
    """
    before, after = _widths(data, pad_before, pad_after, name)
    axes = [
        axis
        for axis, widths in enumerate(zip(before, after, strict=True))
        if not all(is_const(width, 0) for width in widths)
    ]
    for first in range(0, len(axes), AXES_OF_A_STAGE):
        widths = {axis: (before[axis], after[axis]) for axis in axes[first:][:AXES_OF_A_STAGE]}
        data = _extended_along(data, widths, name, sources)
    return data


AXES_OF_A_STAGE = 2
"""With more axes the number of slices would grow faster than the memory that is saved."""


def _extended_along(
    data: Tensor, widths: Mapping[int, tuple[PrimExpr, PrimExpr]], name: str, sources: Sources
) -> Tensor:
    def element(*index: PrimExpr) -> PrimExpr:
        def read(axes: Sequence[int], positions: Mapping[int, PrimExpr]) -> PrimExpr:
            if not axes:
                return data(*(positions.get(n, i) for n, i in enumerate(index)))
            axis, *others = axes
            i, (low, high), size = index[axis], widths[axis], data.shape[axis]
            position = i - low
            start, end = sources(position, size)
            value = read(others, {**positions, axis: position})
            if not _is_negative(high):
                is_after = i >= low + size
                value = intrin.if_then_else(is_after, read(others, {**positions, axis: end}), value)
            if not _is_negative(low):
                is_before = i < low
                value = intrin.if_then_else(
                    is_before, read(others, {**positions, axis: start}), value
                )
            return value

        return read(list(widths), {})

    shape = [
        _padded(size, *widths[axis]) if axis in widths else size
        for axis, size in enumerate(data.shape)
    ]
    return injective(shape, element, name)


def _is_negative(width: PrimExpr) -> bool:
    """True if no element is added."""
    return isinstance(width, tir.IntImm) and width.value <= 0


def reflect_pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    name: str = "ReflectPadInput",
) -> Tensor:
    """The data continued by its mirror image; the elements at the ends are not repeated.

    The image is one element shorter than an axis, and so are the widths at most.

    Errors:
        MisuseError: a width is missing for an axis.
    """

    def sources(position: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        last = (size - ops.const(1, size.dtype)) * ops.const(2, size.dtype)
        return ops.const(0, position.dtype) - position, last - position

    return _extended(data, pad_before, pad_after, name, sources)


def replicate_pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    name: str = "ReplicatePadInput",
) -> Tensor:
    """The data continued by its first and last element along each axis.

    Errors:
        MisuseError: a width is missing for an axis.
    """

    def sources(position: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        return ops.const(0, size.dtype), size - ops.const(1, size.dtype)

    return _extended(data, pad_before, pad_after, name, sources)


def circular_pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    name: str = "CircularPadInput",
) -> Tensor:
    """The data continued from its other end along each axis.

    Errors:
        MisuseError: a width is missing for an axis.
    """

    def sources(position: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        return position + size, position - size

    return _extended(data, pad_before, pad_after, name, sources)


def mirror_pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """The data continued by its mirror image, with the elements at the ends in mode "SYMMETRIC".

    Mode "REFLECT" excludes them, as `reflect_pad` does.

    Errors:
        MisuseError: a width is missing for an axis, or there is no such mode.
    """
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise unexpected(mode, "mirror_pad: mode is 'SYMMETRIC' or 'REFLECT'")
    if mode == "REFLECT":
        return reflect_pad(data, pad_before, pad_after, name)

    def sources(position: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        twice, one = size * ops.const(2, size.dtype), ops.const(1, position.dtype)
        return (ops.const(-1, position.dtype) - position, twice - one - position)

    return _extended(data, pad_before, pad_after, name, sources)


def dilate(
    data: Tensor, strides: Sequence[int], dilation_value: ExprLike = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """The data with `strides[a] - 1` elements of one value between neighbours along axis a.

    Errors:
        MisuseError: a stride is missing for an axis.
    """
    if len(strides) != data.ndim:
        raise MisuseError(f"dilate: {counted(len(strides), 'stride')} for rank {data.ndim}")
    fill = ops.cast_to(dilation_value, data.dtype)
    steps = as_sizes(strides)

    def element(*index: PrimExpr) -> PrimExpr:
        is_element, source = [], []
        for i, step in zip(index, steps, strict=True):
            if is_const(step, 1):
                source.append(i)
                continue
            is_element.append(ops.compare(tir.EQ, i % step, ops.const(0, i.dtype)))
            source.append(i // step)
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*is_element), value, fill) if is_element else value

    shape = [
        size if is_const(step, 1) else _dilated(size, step)
        for size, step in zip(data.shape, steps, strict=True)
    ]
    return injective(shape, element, name)


def _dilated(size: PrimExpr, step: PrimExpr) -> PrimExpr:
    """The size of an axis after dilation; an empty axis stays empty."""
    one = ops.const(1, size.dtype)
    return ops.maximum((size - one) * step + one, ops.const(0, size.dtype))
