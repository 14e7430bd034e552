"""Element offsets of buffers, flattened buffers, and pointers into buffers for calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, index_count
from relaxpy.ir.tir.expr import Call, ExprLike, IntImm, PrimExpr
from relaxpy.support.dataclass import replace

_MASKS = {"r": Buffer.READ, "w": Buffer.WRITE}


def _axis_groups(buffer: Buffer) -> Iterator[range]:
    """The buffer axes that form each physical axis."""
    ends = [0, *buffer.axis_separators, buffer.ndim]
    for begin, end in pairwise(ends):
        yield range(begin, end)


def _integer(value: ExprLike, noun: str) -> PrimExpr:
    result = ops.convert(value)
    if not result.dtype.is_int or result.dtype.is_bool:
        raise unexpected(value, f"{noun} is an integer")
    return result


def offsets(buffer: Buffer, indices: Sequence[ExprLike]) -> list[PrimExpr]:
    """The simplified element offset of `indices` along each physical axis.

    Errors:
        MisuseError: the number of indices differs from the rank, an index is not an integer, or a
            buffer with several physical axes has an offset.
    """
    check_type(indices, (tuple, list), "expected a list of indices")
    values = [_integer(index, "an index") for index in indices]
    if len(values) != buffer.ndim:
        raise MisuseError(index_count(buffer, values))
    physical_offsets: list[PrimExpr] = []
    for axes in _axis_groups(buffer):
        offset: PrimExpr = ops.const(0)
        for axis in axes:
            if buffer.strides:
                offset = offset + values[axis] * buffer.strides[axis]
            else:
                offset = offset * buffer.shape[axis] + values[axis]
        physical_offsets.append(offset)
    if not (isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0):
        if len(physical_offsets) > 1:
            raise MisuseError(f"the memory of buffer {buffer.name} has several axes and an offset")
        physical_offsets[0] = physical_offsets[0] + buffer.elem_offset
    simplify = Analyzer().simplify
    return [simplify(offset) for offset in physical_offsets]


def flattened(buffer: Buffer) -> Buffer:
    """The buffer with one dimension per physical axis; itself if it has that form."""
    groups = list(_axis_groups(buffer))
    if len(groups) == buffer.ndim and not buffer.strides:
        return buffer
    sizes: list[PrimExpr] = []
    for axes in groups:
        size: PrimExpr = ops.const(1)
        for axis in axes[:1] if buffer.strides else axes:
            size = size * buffer.shape[axis]
        sizes.append(size * buffer.strides[axes[0]] if buffer.strides and axes else size)
    return replace(
        buffer, shape=tuple(sizes), strides=(), axis_separators=tuple(range(1, len(groups)))
    )


def access_ptr(
    buffer: Buffer,
    access_mask: str | int,
    ptr_type: str = "handle",
    content_lanes: int = 1,
    offset: ExprLike = 0,
    extent: ExprLike | None = None,
) -> Call:
    """A `tvm_access_ptr` call: a pointer into the buffer with the number of its elements.

    Errors:
        MisuseError: the mask is neither a number nor a string of "r" and "w"; an offset or extent
            is not an integer.
    """
    if isinstance(access_mask, str):
        unknown = set(access_mask) - set(_MASKS)
        if unknown or not access_mask:
            raise MisuseError(f'a mask consists of "r" and "w", found {access_mask!r:.60}')
        mask = sum(_MASKS[letter] for letter in set(access_mask))
    else:
        mask = ops.as_int(access_mask)
    lanes, start = ops.as_int(content_lanes), _integer(offset, "an offset")
    if extent is not None:
        count = _integer(extent, "an extent")
    elif buffer.strides:
        count = buffer.strides[0] * buffer.shape[0] - start
    else:
        count = ops.const(1)
        for size in buffer.shape:
            count = count * size
        count = count - start
    position = buffer.elem_offset + start
    kind = buffer.dtype
    if lanes > 1:
        kind = kind.with_lanes(lanes)
        count, position = count // lanes, position // lanes
    element = Call(kind, "tir.type_annotation", ())
    return Call(ptr_type, "tir.tvm_access_ptr", (element, buffer.data, position, count, mask))
