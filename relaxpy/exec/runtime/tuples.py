"""Packed functions on tuples and shapes that passes insert calls of."""

from __future__ import annotations

from relaxpy.exec.runtime.registry import register_func
from relaxpy.exec.runtime.values import Array, ShapeTuple, Value


@register_func("vm.builtin.tuple_reset_item", pure=True)
def tuple_reset_item(values: tuple[Value, ...], index: int) -> tuple[()]:
    """Mark that a field is not read again: tuples are Python's, so that the field stays."""
    return ()


@register_func("vm.builtin.tensor_to_shape", pure=True)
def tensor_to_shape(data: Array) -> ShapeTuple:
    """The shape of the elements of a tensor."""
    return ShapeTuple(data.tolist())
