"""Packed functions on tuples and shapes that passes insert."""

from __future__ import annotations

from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Value


@provided("vm.builtin.tuple_reset_item", pure=True)
def tuple_reset_item(values: tuple[Value, ...], index: int) -> tuple[()]:
    """Mark that a field is dead: a no-op, as tuples are immutable."""
    return ()
