"""Files of GGUF, versions 2 and 3: quantised tensors are read as float32.

The package gguf knows the quantised formats; the header is read here, within the file's length, so
that a damaged one takes bounded time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.weights.tensors import Array, Entry, mapped

_PLAIN = {
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
}
_STRING, _ARRAY, _ALIGNMENT = 8, 9, "general.alignment"
_SIZES: Final[Mapping[int, int]] = dict(
    zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), (1, 1, 2, 2, 4, 4, 4, 1, 8, 8, 8), strict=True)
)
"""The bytes of a value of metadata by the number of its type."""
_DEEPEST, _MOST_AXES = 8, 4


class _Reader:
    """A position in the header of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: Array = np.memmap(path, np.uint8, "r")
        self.position = 0

    def damaged(self, reason: str) -> FrontendError:
        return FrontendError(f"{str(self.path)!r} is no file of GGUF: {reason}")

    def taken(self, size: int) -> bytes:
        """The next bytes.

        Errors:
            FrontendError: there are fewer.
        """
        if size > self.data.size - self.position:
            raise self.damaged(f"it ends at byte {self.data.size}, before the end of its header")
        self.position += size
        return self.data[self.position - size : self.position].tobytes()

    def number(self, size: int = 8) -> int:
        return int.from_bytes(self.taken(size), "little")

    def count(self, smallest: int) -> int:
        """A number of things, each of which takes at least so many bytes of the rest."""
        number = self.number()
        if number * smallest > self.data.size - self.position:
            raise self.damaged(f"{number} entries do not fit in it")
        return number

    def text(self) -> str:
        return self.taken(self.count(1)).decode("utf-8", "replace")

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Skip a value of metadata."""
        if kind == _STRING:
            self.taken(self.count(1))
        elif kind == _ARRAY and depth < _DEEPEST:
            inner = self.number(4)
            size = _SIZES.get(inner)
            if size is not None:
                count = self.count(size)
                self.position += count * size
                return
            for _ in range(self.count(8)):
                self.skip_value(inner, depth + 1)
        elif kind in _SIZES:
            self.taken(_SIZES[kind])
        else:
            raise self.damaged(f"there is no type {kind} of metadata")


def read_gguf(path: Path) -> dict[str, Entry]:
    """The tensors of a file.

    Errors:
        FrontendError: it is damaged, or has a format that the package does not know.
        ModuleNotFoundError: gguf is not installed.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "these files are read by the package gguf: pip install 'relaxpy[gguf]'", name="gguf"
        ) from None
    try:
        reader = _Reader(path)
    except ValueError:  # an empty file cannot be mapped
        raise FrontendError(f"{str(path)!r} is no file of GGUF: it is empty") from None
    if reader.taken(4) != b"GGUF":
        raise reader.damaged("it does not begin with GGUF")
    version = reader.number(4)
    if version not in {2, 3}:
        raise reader.damaged(f"it has version {version}, expected 2 or 3")
    tensor_count, value_count = reader.count(24), reader.count(13)
    alignment = 32
    for _ in range(value_count):
        key, kind = reader.text(), reader.number(4)
        start = reader.position
        reader.skip_value(kind)
        if key == _ALIGNMENT and kind in _SIZES:
            found = reader.data[start : reader.position].tobytes()
            alignment = int.from_bytes(found, "little")
    if not alignment or alignment & (alignment - 1):
        raise reader.damaged(f"its alignment is {alignment}")
    described = []
    for _ in range(tensor_count):
        name, rank = reader.text(), reader.number(4)
        if rank > _MOST_AXES:
            raise reader.damaged(f"tensor {name!r:.80} has {rank} axes")
        shape = tuple(reader.number() for _ in range(rank))[::-1]
        described.append((name, shape, reader.number(4), reader.number()))
    data_start = -(-reader.position // alignment) * alignment
    entries: dict[str, Entry] = {}
    for name, shape, code, place in described:
        if name in entries:
            raise reader.damaged(f"it has two tensors {name!r:.80}")
        try:
            kind = GGMLQuantizationType(code)
        except ValueError:
            raise reader.damaged(f"tensor {name!r:.80} has the unknown format {code}") from None
        block, size = GGML_QUANT_SIZES[kind]
        row = shape[-1] if shape else 1
        total = math.prod(shape) // block * size
        if row % block or data_start + place + total > reader.data.size:
            raise reader.damaged(
                f"tensor {name!r:.80} of shape {shape} and format {kind.name} does not fit"
            )
        offset = data_start + place
        known = _PLAIN.get(kind.name)
        if known is None and total == 0:
            read: Callable[[], Array] = partial(np.empty, shape, np.float32)
            entries[name] = Entry(shape, np.dtype(np.float32), path, read)
        elif known is not None:
            dtype = DataType(known).numpy()
            entries[name] = Entry(shape, dtype, path, partial(mapped, path, offset, dtype, shape))
        else:
            read = partial(_dequantized, path, offset, (*shape[:-1], row // block * size), kind)
            entries[name] = Entry(shape, np.dtype(np.float32), path, read)
    return entries


def _dequantized(path: Path, offset: int, shape: tuple[int, ...], kind: Any) -> Array:
    """A quantised tensor as float32.

    Errors:
        FrontendError: the package cannot read this format.
    """
    from gguf.quants import dequantize

    stored = mapped(path, offset, np.dtype(np.uint8), shape)
    try:
        values: Array = dequantize(stored, kind)
    except NotImplementedError:
        raise FrontendError(
            f"{str(path)!r}: the package gguf cannot read the format {kind.name}",
            hint="convert the model to Q8_0, Q4_K or a format without quantisation",
        ) from None
    return values
