"""A model's file without its weights: these are read one by one from where they stand in it.

Protocol Buffers copies all that it parses. A file that is parsed whole therefore needs twice its
size; one whose weights are left out needs it once, for the arrays.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from onnx import StringStringEntryProto, TensorProto

_GRAPH = 7
_INITIALIZER = 5
_RAW_DATA = 9
_BYTES = 2
#: The bytes of a tensor from which on it is left in the file.
_LEAST = 1 << 12
_SIZES = {1: 8, 5: 4}
#: The key that says that external data are read, not mapped: the file of a model may be replaced.
COPIED = "copied"


class _DamagedError(Exception):
    """A message does not end where it should, or has a field of no known kind."""


def model_bytes(path: Path) -> bytes:
    """The bytes of a model, in which large weights are external data in the file itself.

    A file that is damaged, or that a symbolic link leads to, is read whole.

    Errors:
        OSError: the file cannot be read.
    """
    if path.is_symlink() or path.stat().st_size <= _LEAST:
        return path.read_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _model(data, path.name)
        except _DamagedError:
            return bytes(data)


def _model(data: mmap.mmap, name: str) -> bytes:
    result = bytearray()
    for number, start, begin, end in _fields(data, 0, len(data)):
        if number == _GRAPH and begin:
            graph = bytearray()
            for inner, first, inside, last in _fields(data, begin, end):
                if inner == _INITIALIZER and inside:
                    _append(graph, _INITIALIZER, _tensor(data, inside, last, name))
                else:
                    graph += data[first:last]
            _append(result, _GRAPH, graph)
        else:
            result += data[start:end]
    return bytes(result)


def _tensor(data: mmap.mmap, begin: int, end: int, name: str) -> bytes:
    """The bytes of a tensor; large data is replaced by a reference to its position in the file."""
    fields = list(_fields(data, begin, end))
    raw = [item for item in fields if item[0] == _RAW_DATA and item[2]]
    if len(raw) != 1 or raw[0][3] - raw[0][2] < _LEAST:
        return bytes(data[begin:end])
    _, _, first, last = raw[0]
    result = b"".join(data[start:stop] for n, start, _, stop in fields if n != _RAW_DATA)
    place = {"location": name, "offset": str(first), "length": str(last - first), COPIED: "1"}
    entries = [StringStringEntryProto(key=key, value=value) for key, value in place.items()]
    moved = TensorProto(external_data=entries, data_location=TensorProto.EXTERNAL)
    added: bytes = moved.SerializeToString()
    return result + added


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field: its number, where it starts, where its bytes begin (else 0), where it ends."""
    at = begin
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        inside = 0
        if kind == 0:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            size, at = _varint(data, at, end)
            inside, at = at, at + size
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise _DamagedError
        if at > end:
            raise _DamagedError
        yield number, start, inside, at


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _DamagedError
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _DamagedError


def _append(result: bytearray, number: int, content: bytes | bytearray) -> None:
    """Append a field of bytes."""
    for value in (number << 3 | _BYTES, len(content)):
        while value > 127:
            result.append(value & 127 | 128)
            value >>= 7
        result.append(value)
    result += content
