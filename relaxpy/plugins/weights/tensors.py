"""The tensors of files: what they are, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import UnknownNameError, close_names, counted
from relaxpy.plugins.importing.shapes import has_arrays
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.support.dataclass import dataclass

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class Entry:
    """A tensor of a file; `read` returns it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    file: Path
    read: Callable[[], Array]


class Weights(Mapping[str, Array]):
    """The tensors of one or several files by name, each read on access.

    Where its elements lie in the file as in memory, the array is the mapped file: it takes memory
    only for the pages that are used, and is read-only.
    """

    def __init__(self, source: Path, entries: Mapping[str, Entry]) -> None:
        for name, entry in entries.items():
            if not has_arrays(entry.shape, entry.dtype):
                raise FrontendError(
                    f"tensor {name!r:.80} of {str(entry.file)!r} has the shape "
                    f"{entry.shape!r:.200}, which no array has"
                )
        self.source = source
        self.entries = entries

    @override
    def __getitem__(self, name: str) -> Array:
        return self.entry(name).read()

    def entry(self, name: str) -> Entry:
        """The entry of a tensor (shape, datatype, file), without reading its elements.

        Errors:
            UnknownNameError (also KeyError): there is none of this name.
        """
        found = self.entries.get(name)
        if found is None:
            raise UnknownNameError(
                f"{str(self.source)!r} has no tensor {name!r:.80}",
                hint=close_names(str(name), self.entries),
                about=name,
            )
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    @override
    def __len__(self) -> int:
        return len(self.entries)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self.entries

    @override
    def __repr__(self) -> str:
        size = sum(math.prod(e.shape) * e.dtype.itemsize for e in self.entries.values())
        files = len({entry.file for entry in self.entries.values()})
        return f"<{counted(len(self), 'tensor')}, {size / 1e9:.3g} GB, in {counted(files, 'file')}>"


def mapped(path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """A part of a file as an array, which cannot be written to.

    Errors:
        FrontendError: the file has become shorter.
    """
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    if path.stat().st_size < offset + count * dtype.itemsize:
        raise FrontendError(f"{str(path)!r} has changed since it was opened")
    elements = np.memmap(path, np.uint8, "r", offset, (count * dtype.itemsize,))
    return np.asarray(elements).view(dtype).reshape(shape)
