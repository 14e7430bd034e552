"""`open_weights`: the tensors of a file or a folder, of safetensors, GGUF or NumPy.

GGUF is read in versions 2 and 3, quantised tensors as float32. The library of safetensors checks
what is read, and the tensors are mapped.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np
from numpy.lib import format as npy
from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names, counted, unexpected
from relaxpy.exec.store.container import path_to_write, write_whole
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import read_array
from relaxpy.plugins.importing.tensors import has_arrays
from relaxpy.plugins.importing.unsupported import FrontendError, MissingFileError, pointer_hint
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


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


_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ValueError, TypeError, SyntaxError, LookupError, OverflowError),
    *(RuntimeError, MemoryError),  # of what is encrypted, or nested too deeply
)
_INFLATED = 256
_SMALL = 1 << 26
"""Archives whose arrays take more bytes, and more than `_INFLATED` times theirs, are refused."""


def read_npz(path: Path) -> dict[str, Entry]:
    """The arrays of an archive.

    Errors:
        FrontendError: it is damaged, or an array has objects of Python, which would be unpickled,
            or another datatype that Relax lacks.
    """
    entries = {}
    try:
        with zipfile.ZipFile(path) as archive:
            total, limit = 0, max(_SMALL, _INFLATED * path.stat().st_size)
            for member in archive.infolist():
                total += member.file_size
                if total > limit:
                    raise FrontendError(
                        f"{str(path)!r} of {path.stat().st_size} bytes has arrays of more than "
                        f"{limit} bytes",
                        hint="save them without compression: numpy.savez",
                    )
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    shape, dtype = _header(file)
                    size = file.tell() + math.prod(shape) * dtype.itemsize
                try:
                    DataType(dtype)
                except MisuseError:
                    raise FrontendError(
                        f"array {name!r:.80} of {str(path)!r} has the datatype {dtype}, which "
                        "Relax lacks"
                    ) from None
                if size != member.file_size:
                    raise FrontendError(
                        f"array {name!r:.80} of {str(path)!r} needs {size} bytes, found "
                        f"{member.file_size}"
                    )
                entries[name] = Entry(shape, dtype, path, partial(_read, path, member.filename))
    except _DAMAGED as error:
        raise _damaged(path, error) from None
    return entries


def _damaged(path: Path, error: BaseException) -> FrontendError:
    if isinstance(error, FrontendError):
        return error
    return FrontendError(f"{str(path)!r} is not an archive of NumPy's arrays: {error}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """The shape and datatype of an array, at whose elements the file is after that."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if not has_arrays(shape, dtype):
        raise ValueError(f"there is no array of the shape {shape!r:.200}")
    return shape, dtype


def _read(path: Path, member: str) -> Array:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            array: Array = npy.read_array(file, allow_pickle=False)
    except (*_DAMAGED, KeyError) as error:
        raise _damaged(path, error) from None
    return array


_PLAIN = {
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
}
_STRING, _ARRAY, _ALIGNMENT = 8, 9, "general.alignment"
_GGUF_DTYPES: Final[Mapping[int, np.dtype[Any]]] = {
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
        return FrontendError(f"{str(self.path)!r} is not a GGUF file: {reason}", hint=hint)

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
        """A count of items, each at least that many bytes of the rest of the file."""
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
            dtype = _GGUF_DTYPES.get(inner)
            if dtype is not None:
                return np.frombuffer(self.taken(self.count(dtype.itemsize) * dtype.itemsize), dtype)
            return [self.value(inner, depth + 1) for _ in range(self.count(8))]
        if kind not in _GGUF_DTYPES:
            raise self.damaged(f"there is no type {kind} of metadata")
        found = np.frombuffer(self.taken(_GGUF_DTYPES[kind].itemsize), _GGUF_DTYPES[kind])[0].item()
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
            "GGUF files need the package gguf, which is missing: pip install 'relaxpy[gguf]', or "
            "'relaxpy[llm]' to run language models",
            name="gguf",
        ) from None
    try:
        reader = _Reader(path)
    except ValueError:  # an empty file cannot be mapped
        raise FrontendError(f"{str(path)!r} is not a GGUF file: it is empty") from None
    if reader.taken(4) != b"GGUF":
        hint = pointer_hint(bytes(reader.data[:64]))
        raise reader.damaged("it does not begin with GGUF", hint)
    version = reader.number(4)
    if version >> 24 in {2, 3}:
        raise reader.damaged("it has the other byte order (big-endian), expected little-endian")
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
    """A quantised tensor as float32."""
    from gguf.quants import dequantize

    try:
        values: Array = dequantize(tensor.blocks(), tensor.kind)
    except NotImplementedError:
        raise FrontendError(
            f"{str(tensor.path)!r}: the package gguf cannot read the format {tensor.kind.name}",
            hint="convert the model to Q8_0, Q4_K or a format without quantisation",
        ) from None
    return values


_LENGTH = 8
"""The bytes of the number of bytes of the header, which comes first."""
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def read_safetensors(path: Path) -> dict[str, Entry]:
    """The tensors of a file.

    Errors:
        FrontendError: it is damaged, or has a datatype that Relax lacks.
        ModuleNotFoundError: safetensors is not installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "safetensors files need the package safetensors, which is missing: "
            "pip install 'relaxpy[safetensors]', or 'relaxpy[llm]' to run language models",
            name="safetensors",
        ) from None
    try:
        with safe_open(path, "np"):  # names, offsets and lengths are right if this opens it
            pass
    except (SafetensorError, OSError) as error:
        raise FrontendError(f"{str(path)!r} is not a file of safetensors: {error}") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(length))
    entries = {}
    for name, found in header.items():
        if name == "__metadata__":
            continue
        known = _DTYPES.get(found["dtype"])
        if known is None:
            raise FrontendError(
                f"tensor {name!r:.80} of {str(path)!r} has the datatype {found['dtype']}, which "
                "Relax lacks"
            )
        dtype, shape = DataType(known).numpy(), tuple(found["shape"])
        offset = _LENGTH + length + found["data_offsets"][0]
        read = partial(mapped, path, offset, dtype, shape)
        entries[name] = Entry(shape, dtype, path, read)
    return entries


def require_weights_path(path: str | os.PathLike[str]) -> Path:
    """The path of a file that `save_weights` can write.

    Errors:
        As for `save_weights`.
    """
    place = path_to_write(path)
    if place.suffix != ".safetensors":
        raise MisuseError(
            f"expected the name of a file of safetensors, found {place.name!r:.80}",
            hint="it ends in .safetensors",
            about=path,
        )
    if place.is_dir() or not os.access(place.parent, os.W_OK):
        raise PermissionError(f"no file can be written to {str(place)!r:.80}")
    return place


@user_facing
def save_weights(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write tensors to a file of safetensors, which `open_weights` reads.

    A file of this name is replaced when the new one is complete. Larger datatypes are stored first,
    so that mapped arrays are aligned.

    Errors:
        MisuseError (also TypeError, ValueError): the path does not end in .safetensors, a name is
            not a string, or safetensors lacks the datatype of a value.
        OSError: the file cannot be written.
    """
    place = require_weights_path(path)
    kinds = {dtype: kind for kind, dtype in _DTYPES.items()}
    arrays: dict[str, Array] = {}
    header: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        array = np.asarray(read_array(value))
        kind = kinds.get(array.dtype.name)
        if not isinstance(name, str) or name == "__metadata__":
            raise MisuseError(f"{name!r:.80} is not a name of a tensor", about=values)
        if kind is None:
            raise MisuseError(
                f"tensor {name!r:.80} has the datatype {array.dtype}, which safetensors lacks",
                about=value,
            )
        arrays[name] = array
        header[name] = {"dtype": kind, "shape": array.shape}
    stored = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    end = 0
    for name in stored:
        begin, end = end, end + arrays[name].nbytes
        header[name]["data_offsets"] = [begin, end]
    table = json.dumps(header, separators=(",", ":")).encode()
    table += b" " * (-len(table) % _LENGTH)
    start = (len(table).to_bytes(_LENGTH, "little"), table)
    write_whole(place, chain(start, (_bytes(arrays[name]) for name in stored)))


def _bytes(array: Array) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data


_INDEX = ".safetensors.index.json"
_LARGEST_INDEX = 256 * 1024 * 1024
_FileReader: TypeAlias = Callable[[Path], dict[str, Entry]]
_READERS: Mapping[str, _FileReader] = {
    ".safetensors": read_safetensors,
    ".gguf": read_gguf,
    ".npz": read_npz,
}
_PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}


@user_facing
def open_weights(path: str | os.PathLike[str]) -> Weights:
    """The tensors of a file of safetensors, GGUF or NumPy (npz), or of a folder, by name.

    A folder has an index as Hugging Face writes it, `*.safetensors.index.json`, or a file `model`,
    or other files, of one of these kinds. Nothing is read but names and shapes; arrays are mapped
    where that is possible. Quantised tensors of GGUF are read as float32.

    Errors:
        FrontendError (also ValueError): a file is damaged, or its kind is not known; a name is in
            two files; the index names a file outside of its folder.
        MissingFileError (also FileNotFoundError): there is no such file.
        ModuleNotFoundError: the package for this kind is not installed.
    """
    try:
        place = Path(path)
    except TypeError:
        raise unexpected(path, "expected the path of weights") from None
    if not place.exists():
        raise MissingFileError(f"there is no file or folder {str(place)!r}")
    return Weights(place, _in_folder(place) if place.is_dir() else _in_file(place))


def _in_file(path: Path) -> dict[str, Entry]:
    if path.name.endswith(_INDEX):
        return _indexed(path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        pickled = "it is unpickled, which runs code of its author: save it as safetensors"
        raise FrontendError(
            f"{str(path)!r} is not a file of weights of a known kind",
            hint=pickled if path.suffix in _PICKLED else f"kinds are {', '.join(_READERS)}",
        )
    return _read_file(path, reader)


def _read_file(path: Path, reader: _FileReader) -> dict[str, Entry]:
    with path.open("rb") as file:
        if hint := pointer_hint(file.read(64)):
            raise FrontendError(f"{str(path)!r} has no weights", hint=hint)
    return reader(path)


def _in_folder(folder: Path) -> dict[str, Entry]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    indices = [path for path in files if path.name.endswith(_INDEX)]
    if len(indices) == 1:
        return _indexed(indices[0])
    for suffix, reader in _READERS.items():
        if chosen := [path for path in files if path.suffix == suffix]:
            whole = [path for path in chosen if path.stem == "model"]
            return _merged((path, _read_file(path, reader)) for path in whole or chosen)
    pickled = next((path for path in files if path.suffix in _PICKLED), None)
    if pickled is not None:
        return _in_file(pickled)
    raise FrontendError(f"{str(folder)!r} has no files of weights ({', '.join(_READERS)})")


def _indexed(index: Path) -> dict[str, Entry]:
    """The tensors of the files that an index names."""
    if index.stat().st_size > _LARGEST_INDEX:
        raise FrontendError(f"{str(index)!r} is too large for an index")
    try:
        table = json.loads(index.read_bytes())["weight_map"]
        names = {str(tensor): str(file) for tensor, file in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FrontendError(f"{str(index)!r} is not an index: it has no table weight_map") from None
    files: dict[str, dict[str, Entry]] = {}
    for file in sorted(set(names.values())):
        path = index.parent / file
        if Path(file).name != file or not path.is_file() or file.endswith(_INDEX):
            raise FrontendError(
                f"{str(index)!r} names {file!r:.80}, which is not a file of weights beside it"
            )
        files[file] = _in_file(path)
    absent = [tensor for tensor, file in names.items() if tensor not in files[file]]
    if absent:
        raise FrontendError(
            f"{str(index)!r} names {len(absent)} tensors that are not in their files, the first is "
            f"{absent[0]!r:.80} in {names[absent[0]]!r}"
        )
    return {tensor: files[file][tensor] for tensor, file in names.items()}


def _merged(files: Iterable[tuple[Path, dict[str, Entry]]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for path, found in files:
        if common := entries.keys() & found.keys():
            name = min(common)
            raise FrontendError(
                f"tensor {name!r:.80} is in {entries[name].file.name!r} and in {path.name!r}",
                hint="pass one of the files",
            )
        entries |= found
    return entries
