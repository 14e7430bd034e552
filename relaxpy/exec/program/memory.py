"""The memory that values of a function are in."""

from __future__ import annotations

from typing import Literal, TypeAlias

from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The memory of tensors with the same elements; or storage, or a local function.

    Kernels fill new memory. Foreign memory is that of any other result, and may be memory that is
    kept. Native functions number parameters and constants.
    """

    origin: Literal["parameter", "constant", "new", "foreign", "storage", "function"]
    index: int = 0


Place: TypeAlias = "Memory | tuple[Place, ...]"
"""The memory of a tensor, or the places of the fields of a tuple; other values have none: `()`."""
