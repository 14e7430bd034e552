"""Archives of NumPy's arrays."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.plugins.importing.shapes import has_arrays
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.weights.tensors import Array, Entry

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
    return FrontendError(f"{str(path)!r} is no archive of NumPy's arrays: {error}")


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
