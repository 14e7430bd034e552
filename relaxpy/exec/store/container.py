"""Files of a JSON table and arrays, which are memory-mapped.

A file is a header (magic, version, length and SHA-256 of the table), the table, and the elements of
each array, beginning at multiples of 64 bytes. The table is `{"content": ..., "sections":
[[datatype, shape, SHA-256], ...]}`. Sections follow in this order, so that no offsets are stored
that could be wrong. Numbers are little-endian.

Paths of files that users pass, and atomic writes, are at the end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from os import PathLike, fsencode, fspath
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeAlias
from weakref import ref

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.runtime.tensors import release
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import may_change
from relaxpy.ir.serialize import check_size, unique_members
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 2
_MAGIC: Final = b"\x93relaxpy"
_OLDER: Final = b'{"format": "relaxpy-executable"'
"""The start of files of version 1, which were JSON including the arrays."""
HEADER: Final = struct.Struct("<8sI4xQ32s8x")
_ALIGNMENT: Final = 64
_LARGEST_TABLE: Final = 1 << 28
_PICKLE: Final = "the pickle"


def is_container(start: bytes) -> bool:
    """True if a file that begins so is a container, maybe of an older format."""
    return start.startswith((_MAGIC, _OLDER))


class Sections(Sequence[Array]):
    """Arrays to be stored; equal ones are stored once.

    The arrays of literals that do not keep them are computed at each read.
    """

    def __init__(self) -> None:
        self._arrays: list[Callable[[], Array]] = []
        self.rows: list[tuple[str, tuple[int, ...], str]] = []
        self._numbers: dict[tuple[str, tuple[int, ...], str], int] = {}

    def add(self, array: Array) -> int:
        """The number of the section that has the elements of `array`."""
        row = str(DataType(array.dtype)), array.shape, digest(array)
        number = self._numbers.setdefault(row, len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
            self._arrays.append(getattr(array, "released", None) or (lambda: array))
        return number

    @override
    def __len__(self) -> int:
        return len(self._arrays)

    @override
    def __getitem__(self, number: Any) -> Any:
        return self._arrays[number]()


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A table and arrays. Two containers are equal if their tables, with the arrays' hashes, are.

    Fields:
        table: the text of the table.
        content: the table without the sections.
        arrays: the arrays of the sections; those that were loaded are read-only.
    """

    table: str
    content: Mapping[str, Any]
    arrays: Sequence[Array]

    @classmethod
    def of(cls, content: Mapping[str, Any], sections: Sections) -> Self:
        """The container of a table, in which arrays are numbers of sections."""
        table = json.dumps(
            {"content": content, "sections": sections.rows}, separators=(",", ":"), allow_nan=False
        )
        return cls(table, content, sections)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """The container in a file, which stays mapped as long as one of the arrays is used.

        Errors:
            MisuseError (also ValueError): the file is of another kind or version, or damaged.
            OSError: it cannot be read.
        """
        memory: bytes | mmap.mmap | None = None
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size:
                with suppress(OSError):  # some systems, as WebAssembly's, map no files
                    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if memory is None:  # or a pipe, or a device that never ends
                start = file.read(HEADER.size)
                memory = start + file.read() if start.startswith(_MAGIC) else start
            return cls.of_memory(memory, str(path))

    @classmethod
    def of_memory(cls, memory: bytes | mmap.mmap | memoryview, source: str) -> Self:
        """The container in memory, which messages call `source`. Errors: as for `read`."""
        data = np.frombuffer(memory, np.uint8)
        start = bytes(memory[: HEADER.size])
        if not start.startswith(_MAGIC):
            older = start.startswith(_OLDER)
            raise MisuseError(
                f"{source} is an executable of an older format"
                if older
                else f"{source} is not a saved executable",
                hint=f"{'compile the program again, and ' * older}write one with Executable.save",
                about=source,
            )
        if len(start) < HEADER.size:
            raise damaged(source, f"it ends after {len(start)} bytes")
        _, version, length, expected = HEADER.unpack(start)
        if version != VERSION:
            raise MisuseError(
                f"{source} has version {version}, expected version {VERSION}", about=source
            )
        if length > min(len(data) - HEADER.size, _LARGEST_TABLE):
            raise damaged(source, f"its table of {length} bytes is not in it")
        if start != HEADER.pack(_MAGIC, version, length, expected):
            raise damaged(source, "its header has other bytes than zero between the numbers")
        table = bytes(memory[HEADER.size : HEADER.size + length])
        if hashlib.sha256(table).digest() != expected:
            raise damaged(source, "its table does not have the hash in its header")
        content, rows = _parsed(table, source)
        sections: list[Array] = []
        end = HEADER.size + length
        for dtype, shape, _ in rows:
            begin = _rounded(end)
            if data[end:begin].any():
                raise damaged(source, f"bytes before section {len(sections)} are not zero")
            end = begin + math.prod(shape) * dtype.itemsize
            sections.append(data[begin:end])
        if end != len(data):
            raise damaged(source, f"it has {len(data)} bytes, and {end} according to its table")
        for number, (section, row) in enumerate(zip(sections, rows, strict=True)):
            if digest(section) != row[2]:
                raise damaged(source, f"section {number} does not have the hash in its table")
            release(section)
        return cls(table.decode(), content, _views(sections, rows, source))

    def write(self, path: Path) -> None:
        """Write a file atomically: it replaces another one when it is complete.

        Errors:
            OSError: the file cannot be written.
        """
        write_whole(path, self.chunks())

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes that `write` writes, in chunks."""
        table = self.table.encode()
        yield HEADER.pack(_MAGIC, VERSION, len(table), hashlib.sha256(table).digest())
        yield table
        end = HEADER.size + len(table)
        for array in self.arrays:
            section = _elements(array)
            yield bytes(_rounded(end) - end)
            yield section.data
            end = _rounded(end) + section.nbytes
            release(section)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Container) and self.table == other.table

    @override
    def __hash__(self) -> int:
        return hash(self.table)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.table, [_elements(array) for array in self.arrays])


_Rows: TypeAlias = "list[tuple[np.dtype[Any], list[int], str]]"


def _restored(table: str, sections: list[Array]) -> Container:
    """A container from a pickle, whose table a process reads once."""
    content, rows = _parsed_once(table)
    for section in sections:
        section.flags.writeable = False
    return Container(table, content, _views(sections, rows, _PICKLE))


@lru_cache(maxsize=4)
def _parsed_once(table: str) -> tuple[dict[str, Any], _Rows]:
    return _parsed(table.encode(), _PICKLE)


def _parsed(table: bytes, source: str) -> tuple[dict[str, Any], _Rows]:
    """The content of a table, and the datatype, shape and hash of each section."""
    try:
        check_size(text := table.decode())
        match json.loads(text, object_pairs_hook=unique_members):
            case {"content": dict() as content, "sections": list() as rows}:
                return content, [_row(row) for row in rows]
            case _:
                raise ValueError("it has no sections")
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(source, f"its table cannot be read: {error}") from None


def _row(row: object) -> tuple[np.dtype[Any], list[int], str]:
    match row:
        case [str() as name, list() as shape, str() as expected]:
            if all(type(size) is int and size >= 0 for size in shape):
                return DataType(name).numpy(), shape, expected
        case _:
            pass
    raise ValueError(f"{row!r:.60} is not a section")


def _views(sections: Sequence[Array], rows: _Rows, source: str) -> list[Array]:
    try:
        return [s.view(d).reshape(n) for s, (d, n, _) in zip(sections, rows, strict=True)]
    except (ValueError, OverflowError) as error:  # NumPy limits ranks and sizes
        raise damaged(source, f"a section has no such shape: {error}") from None


def digest(array: Array) -> str:
    """The SHA-256 of the elements of an array; that of a large one that cannot change is kept."""
    if array.nbytes < Kept.DIGEST_KEPT or may_change(array):
        return hashlib.sha256(_elements(array).data).hexdigest()
    address = id(array)
    known, found = _DIGESTS.get(address, (None, ""))
    if known is None or known() is not array:
        found = hashlib.sha256(_elements(array).data).hexdigest()
        _DIGESTS[address] = ref(array, lambda gone: _forget(address, gone)), found
    return found


_DIGESTS: Final[dict[int, tuple[ref[Array], str]]] = {}
"""The hashes of large read-only arrays, by identity."""


def _forget(address: int, gone: ref[Array]) -> None:
    """Remove the hash of an array that is gone, unless another one has its place."""
    if _DIGESTS.get(address, (None, ""))[0] is gone:
        del _DIGESTS[address]


def _elements(array: Array) -> Array:
    """The bytes of the elements, without a copy if they are contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def damaged(source: str, problem: str) -> MisuseError:
    """The error for a damaged file."""
    return MisuseError(
        f"the executable in {source} is damaged: {problem}",
        hint="write it again with Executable.save",
        about=source,
    )


def _rounded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def as_path(path: object) -> Path:
    """The path of a file. Errors: as for `path_text`."""
    from pathlib import Path  # slow, and programs that are not saved need none

    return Path(path_text(path))


def path_text(path: object) -> str:
    """The path of a file. Errors: MisuseError (also TypeError, ValueError): it is not one."""
    if isinstance(path, (str, PathLike)) and isinstance(text := fspath(path), str):
        with suppress(UnicodeEncodeError):
            if b"\0" not in fsencode(text):
                return text
    raise unexpected(path, "expected the path of a file")


def path_to_write(path: object) -> Path:
    """The path of a new file in a folder that exists.

    Errors:
        MisuseError (also TypeError, ValueError): it is not a path.
        FileNotFoundError: there is no such folder.
    """
    new = as_path(path)
    if not new.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no folder", str(new.parent))
    return new


def write_whole(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file, which takes the place of another one when it is complete.

    Errors:
        OSError: the file cannot be written.
    """
    from pathlib import Path

    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():  # such as a pipe
        with place.open("wb") as file:
            file.writelines(chunks)
        return
    unfinished = place.with_name(f".relaxpy-{os.urandom(8).hex()}.tmp")
    try:
        with _new_file(unfinished) as file:
            file.writelines(chunks)
            if os.chmod in os.supports_fd and place.exists():
                os.chmod(file.fileno(), place.stat().st_mode & 0o777)
            file.flush()
            os.fsync(file.fileno())  # a crash leaves either the old file or the new one
            if not unfinished.exists():
                number = file.fileno()
                os.link(f"/proc/self/fd/{number}", unfinished, src_dir_fd=number)
        unfinished.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _new_file(path: Path) -> IO[bytes]:
    """A new file, which gets its path later if the system supports unnamed files.

    Such a file vanishes with its process.
    """
    with suppress(OSError, AttributeError):
        return open(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb")
    return path.open("xb")
