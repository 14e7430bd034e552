"""Files of GGUF, versions 2 and 3: quantised tensors are read as float32.

The package gguf knows the quantised formats; the header is read here, within the file's length, so
that a damaged one takes bounded time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.plugins.importing.unsupported import FrontendError, pointer_hint
from relaxpy.plugins.weights.files import Array, Entry, mapped
from relaxpy.support.dataclass import dataclass

_PLAIN = {
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
}
_STRING, _ARRAY, _ALIGNMENT = 8, 9, "general.alignment"
_DTYPES: Final[Mapping[int, np.dtype[Any]]] = {
    number: np.dtype(f"<{code}")
    for number, code in zip(
        (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12),
        ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "u1", "u8", "i8", "f8"),
        strict=True,
    )
}
"""The datatypes of values of metadata by the numbers of their types."""
_TRUTH = 7
_DEEPEST, _MOST_AXES = 8, 4


class _Reader:
    """A position in the header of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = np.memmap(path, np.uint8, "r").data
        self.position = 0

    def damaged(self, reason: str, hint: str | None = None) -> FrontendError:
        return FrontendError(f"{str(self.path)!r} is no file of GGUF: {reason}", hint=hint)

    def taken(self, size: int) -> bytes:
        """The next bytes.

        Errors:
            FrontendError: there are fewer.
        """
        if size > len(self.data) - self.position:
            raise self.damaged(f"it ends at byte {len(self.data)}, before the end of its header")
        self.position += size
        return self.data[self.position - size : self.position].tobytes()

    def number(self, size: int = 8) -> int:
        return int.from_bytes(self.taken(size), "little")

    def count(self, smallest: int) -> int:
        """A number of things, each of which takes at least so many bytes of the rest."""
        number = self.number()
        if number * smallest > len(self.data) - self.position:
            raise self.damaged(f"{number} entries do not fit in it")
        return number

    def text(self) -> str:
        return self.taken(self.count(1)).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of metadata: arrays of numbers are arrays of NumPy, others are lists."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and depth < _DEEPEST:
            inner = self.number(4)
            dtype = _DTYPES.get(inner)
            if dtype is not None:
                return np.frombuffer(self.taken(self.count(dtype.itemsize) * dtype.itemsize), dtype)
            return [self.value(inner, depth + 1) for _ in range(self.count(8))]
        if kind not in _DTYPES:
            raise self.damaged(f"there is no type {kind} of metadata")
        found = np.frombuffer(self.taken(_DTYPES[kind].itemsize), _DTYPES[kind])[0].item()
        return bool(found) if kind == _TRUTH else found


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file: its format, and where its blocks are."""

    shape: tuple[int, ...]
    kind: Any
    """The format, a `GGMLQuantizationType` of the package."""
    path: Path
    offset: int
    row_bytes: int

    def blocks(self) -> Array:
        """The bytes of each row, as the file has them."""
        return mapped(
            self.path, self.offset, np.dtype(np.uint8), (*self.shape[:-1], self.row_bytes)
        )

    def entry(self) -> Entry:
        """The tensor as an array of numbers."""
        known = _PLAIN.get(self.kind.name)
        if known is not None:
            dtype = DataType(known).numpy()
            read = partial(mapped, self.path, self.offset, dtype, self.shape)
            return Entry(self.shape, dtype, self.path, read)
        float32 = np.dtype(np.float32)
        if math.prod(self.shape) == 0:
            return Entry(self.shape, float32, self.path, partial(np.empty, self.shape, float32))
        return Entry(self.shape, float32, self.path, partial(_dequantized, self))


@dataclass(frozen=True)
class Header:
    """The metadata of a file, and its tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def read_gguf(path: Path) -> dict[str, Entry]:
    """The tensors of a file. Errors: as of `read_header`."""
    return {name: tensor.entry() for name, tensor in read_header(path).tensors.items()}


def read_header(path: Path) -> Header:
    """The metadata of a file, and its tensors.

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
        hint = pointer_hint(bytes(reader.data[:64]))
        raise reader.damaged("it does not begin with GGUF", hint)
    version = reader.number(4)
    if version not in {2, 3}:
        raise reader.damaged(f"it has version {version}, expected 2 or 3")
    tensor_count, value_count = reader.count(24), reader.count(13)
    metadata: dict[str, Any] = {}
    for _ in range(value_count):
        key = reader.text()
        metadata[key] = reader.value(reader.number(4))
    alignment = metadata.get(_ALIGNMENT, 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise reader.damaged(f"its alignment is {alignment!r:.60}")
    described = []
    for _ in range(tensor_count):
        name, rank = reader.text(), reader.number(4)
        if rank > _MOST_AXES:
            raise reader.damaged(f"tensor {name!r:.80} has {rank} axes")
        shape = tuple(reader.number() for _ in range(rank))[::-1]
        described.append((name, shape, reader.number(4), reader.number()))
    data_start = -(-reader.position // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, shape, code, place in described:
        if name in tensors:
            raise reader.damaged(f"it has two tensors {name!r:.80}")
        try:
            kind = GGMLQuantizationType(code)
        except ValueError:
            raise reader.damaged(f"tensor {name!r:.80} has the unknown format {code}") from None
        block, size = GGML_QUANT_SIZES[kind]
        row = shape[-1] if shape else 1
        total = math.prod(shape) // block * size
        if row % block or data_start + place + total > len(reader.data):
            raise reader.damaged(
                f"tensor {name!r:.80} of shape {shape} and format {kind.name} does not fit"
            )
        row_bytes = row // block * size
        tensors[name] = StoredTensor(shape, kind, path, data_start + place, row_bytes)
    return Header(metadata, tensors)


def _dequantized(tensor: StoredTensor) -> Array:
    """A quantised tensor as float32.

    Errors:
        FrontendError: the package cannot read this format.
    """
    from gguf.quants import dequantize

    try:
        values: Array = dequantize(tensor.blocks(), tensor.kind)
    except NotImplementedError:
        raise FrontendError(
            f"{str(tensor.path)!r}: the package gguf cannot read the format {tensor.kind.name}",
            hint="convert the model to Q8_0, Q4_K or a format without quantisation",
        ) from None
    return values
