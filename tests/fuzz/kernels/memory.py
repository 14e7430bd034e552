"""The buffers of the oracle: memory, whose elements are looked at one at a time."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.kernels.semantics import RefusedError, Scalar, UndefinedError

Array = np.ndarray[Any, Any]


def kind_of(dtype: str) -> np.dtype[Any]:
    """The NumPy datatype of that name."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


class Buffer:
    """An array with bounds; `written` has all bits set where an element of scratch has a value."""

    def __init__(self, name: str, array: Array, written: Array | None = None) -> None:
        self.name = name
        self.array = array
        self.written = written

    @property
    def size(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return self.array.shape

    def _place(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        for axis, (index, size) in enumerate(zip(indices, self.array.shape, strict=True)):
            if not 0 <= index < size:
                raise RefusedError(
                    f"bounds: index {index} outside dimension {axis} of {self.name}: {size}"
                )
        return indices

    def load(self, *indices: int) -> Scalar:
        """One element: integers and Booleans as Python's."""
        place = self._place(indices)
        if self.written is not None and set(self.written[(*place, None)].tobytes()) != {255}:
            raise UndefinedError(f"{self.name}{list(indices)} is read before it is written")
        value = self.array[place]
        return value.item() if self.array.dtype.kind in "biu" else value

    def store(self, value: Scalar, *indices: int) -> None:
        """Set one element."""
        place = self._place(indices)
        if not self.array.flags.writeable:
            raise RefusedError(f"read-only: {self.name}")
        self.array[place] = value
        if self.written is not None:
            self.written[(*place, None)].view(np.uint8)[...] = 255

    def region(self, name: str, box: list[tuple[int, int]], shape: tuple[int, ...]) -> Buffer:
        """The part from each start on, of each extent, seen as `shape`."""
        for axis, ((start, extent), size) in enumerate(zip(box, self.array.shape, strict=True)):
            if extent > 0 and not 0 <= start <= start + extent <= size:
                raise RefusedError(f"region: {name} outside dimension {axis} of {self.name}")
        extents = tuple(max(extent, 0) for _, extent in box)
        spare = len(extents) - len(shape)
        if any(e != 1 for e in extents[:spare]) or extents[spare:] != shape:
            raise RefusedError(f"region: {name} of extents {extents} is not of shape {shape}")
        slices = tuple(
            slice(max(s, 0), max(s, 0) + e) for (s, _), e in zip(box, extents, strict=True)
        )

        def part(array: Array) -> Array:
            return array[slices].reshape(shape) if 0 in extents else _dropped(array[slices], spare)

        return Buffer(name, part(self.array), None if self.written is None else part(self.written))

    def check(
        self, shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int | None
    ) -> None:
        """Refuse an argument that does not have this layout."""
        found = self.array.shape
        if found != shape:
            raise RefusedError(f"shape: {self.name} has {found}, expected {shape}")
        steps = tuple(s // self.array.itemsize for s in self.array.strides)
        asked = zip(found, steps, strides or (), strict=False)
        if self.array.size and any(n > 1 and one != other for n, one, other in asked):
            raise RefusedError(f"strides: {self.name} has {steps}, expected {strides}")
        if offset:
            raise RefusedError(f"offset: {self.name} has 0, expected {offset}")


def _dropped(array: Array, axes: int) -> Array:
    for _ in range(axes):
        array = array[0, ...]
    return array


def scratch(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
    """Fresh memory, of which nothing is written."""
    kind = kind_of(dtype)
    sizes = tuple(max(size, 0) for size in shape)
    return Buffer(name, np.zeros(sizes, kind), np.zeros(sizes, kind))


class View:
    """A buffer declared over the memory of another, laid when it is first looked at."""

    def __init__(
        self,
        name: str,
        base: Buffer | View,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        offset: int,
    ) -> None:
        self.name, self.base, self.dtype = name, base, dtype
        self.shape = tuple(max(size, 0) for size in shape)
        self.strides, self.offset = strides, offset
        self._laid: Buffer | None = None

    @property
    def root(self) -> Buffer:
        """The buffer whose memory this is."""
        return self.base.root if isinstance(self.base, View) else self.base

    @property
    def size(self) -> tuple[int, ...]:
        """The sizes of its dimensions, which are those of memory without gaps."""
        return self._buffer().size

    def _buffer(self) -> Buffer:
        if self._laid is None:
            written = self.root.written
            self._laid = Buffer(
                self.name,
                self._lay(self.root.array),
                None if written is None else self._lay(written),
            )
        return self._laid

    def _lay(self, base: Array) -> Array:
        if not base.flags.c_contiguous:
            raise RefusedError(f"gaps: {self.name} is declared over memory with gaps")
        kind = kind_of(self.dtype)
        flat = base.reshape(-1).view(np.uint8)
        strides = self.strides or compact(self.shape)
        if self.offset < 0:
            raise RefusedError(f"view: {self.name} begins at {self.offset}")
        reach = [(size - 1) * step for size, step in zip(self.shape, strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        if 0 not in self.shape and (
            self.offset + low < 0 or (self.offset + high + 1) * kind.itemsize > flat.size
        ):
            raise RefusedError(f"view: {self.name} is larger than its memory")
        if 0 in self.shape:
            return np.zeros(self.shape, kind)
        whole = flat[: flat.size // kind.itemsize * kind.itemsize].view(f"u{kind.itemsize}")
        laid = np.lib.stride_tricks.as_strided(
            whole[self.offset :], self.shape, [s * kind.itemsize for s in strides]
        )
        return laid.view(kind)

    def load(self, *indices: int) -> Scalar:
        """One element."""
        return self._buffer().load(*indices)

    def store(self, value: Scalar, *indices: int) -> None:
        """Set one element."""
        self._buffer().store(value, *indices)

    def region(self, name: str, box: list[tuple[int, int]], shape: tuple[int, ...]) -> Buffer:
        """A part of it."""
        return self._buffer().region(name, box, shape)


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of memory without gaps."""
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size
    return tuple(steps)
