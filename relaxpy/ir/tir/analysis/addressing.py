"""Where the elements of a buffer lie, and how its memory is handed to a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, index_count
from relaxpy.ir.tir.expr import Call, ExprLike, IntImm, PrimExpr

_MASKS = {"r": Buffer.READ, "w": Buffer.WRITE}


def _groups(buffer: Buffer) -> Iterator[range]:
    """The axes that make up each axis of the memory."""
    ends = [0, *buffer.axis_separators, buffer.ndim]
    for begin, end in pairwise(ends):
        yield range(begin, end)


def _integer(value: ExprLike, what: str) -> PrimExpr:
    found = ops.convert(value)
    if not found.dtype.is_int or found.dtype.is_bool:
        raise MisuseError(f"{what} is an integer, found {value!r:.60}", about=value)
    return found


def offsets(buffer: Buffer, indices: Sequence[ExprLike]) -> list[PrimExpr]:
    """How many elements lie before the one at `indices`, for each axis of the memory, simplified.

    Errors:
        MisuseError: another number of indices, or something else than integers; memory of several
            axes that begins elsewhere.
    """
    if not isinstance(indices, (tuple, list)):
        raise MisuseError(f"indices stand in a list, found {indices!r:.60}", about=indices)
    values = [_integer(index, "an index") for index in indices]
    if len(values) != buffer.ndim:
        raise MisuseError(index_count(buffer, values))
    found: list[PrimExpr] = []
    for axes in _groups(buffer):
        offset: PrimExpr = ops.const(0)
        for axis in axes:
            if buffer.strides:
                offset = offset + values[axis] * buffer.strides[axis]
            else:
                offset = offset * buffer.shape[axis] + values[axis]
        found.append(offset)
    if not (isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0):
        if len(found) > 1:
            raise MisuseError(f"the memory of buffer {buffer.name} has several axes and an offset")
        found[0] = found[0] + buffer.elem_offset
    simplify = Analyzer().simplify
    return [simplify(offset) for offset in found]


def flattened(buffer: Buffer) -> Buffer:
    """The buffer with one dimension for each axis of its memory; itself if it is like that."""
    groups = list(_groups(buffer))
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
    """A pointer into the buffer, and how many elements from there on are read or written.

    Errors:
        MisuseError: the mask is neither made of "r" and "w" nor a number; an offset or extent is
            no integer.
    """
    if isinstance(access_mask, str):
        unknown = set(access_mask) - set(_MASKS)
        if unknown or not access_mask:
            raise MisuseError(f'a mask is made of "r" and "w", found {access_mask!r:.60}')
        mask = sum(_MASKS[letter] for letter in set(access_mask))
    else:
        mask = ops.whole(access_mask)
    lanes, start = ops.whole(content_lanes), _integer(offset, "an offset")
    if extent is not None:
        count = _integer(extent, "an extent")
    elif buffer.strides:
        count = buffer.strides[0] * buffer.shape[0] - start
    else:
        count = ops.const(1)
        for size in buffer.shape:
            count = count * size
        count = count - start
    where = buffer.elem_offset + start
    kind = buffer.dtype
    if lanes > 1:
        kind = kind.with_lanes(lanes)
        count, where = count // lanes, where // lanes
    element = Call(kind, "tir.type_annotation", ())
    return Call(ptr_type, "tir.tvm_access_ptr", (element, buffer.data, where, count, mask))
