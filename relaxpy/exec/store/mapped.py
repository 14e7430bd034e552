"""Identities of arrays that are parts of mapped files, whose elements need not be read for it."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import Final

from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.store.container import digest
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.tensor import is_writable
from relaxpy.support.dataclass import dataclass

_SETTLED: Final = 60
"""The seconds after which a file that is changed again certainly gets another time.

Writes to mapped memory set it once, until Linux has written the memory to the disk: by default, it
does so within 35 seconds.
"""


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A part of this process's memory that is a file from `offset` on, and is never written.

    Units: bytes
    """

    begin: int
    end: int
    offset: int
    device: str
    inode: int
    path: str


class MappedFiles:
    """The files that are mapped into this process now; Linux lists them."""

    def __init__(self) -> None:
        self._mappings: list[_Mapping] | None = None
        self._begin = time.time()

    def identity(self, array: Array) -> str:
        """A text that is equal for arrays of equal elements alone, but may differ for these.

        A file that has changed after this object was made, or shortly before, is hashed.
        It is the path, size, times and offset of a file that is mapped read-only; otherwise it is a
        hash of all elements.
        """
        if array.nbytes < Kept.OF_FILE or not array.flags.c_contiguous or is_writable(array):
            return digest(array)
        return self._file(array.ctypes.data, array.nbytes) or digest(array)

    def _file(self, begin: int, size: int) -> str:
        if self._mappings is None:
            self._mappings = _mappings()
        number = bisect_right(self._mappings, begin, key=lambda mapping: mapping.begin) - 1
        if number < 0 or begin + size > self._mappings[number].end:
            return ""
        found = self._mappings[number]
        try:
            state = os.stat(found.path)
        except OSError:  # it was removed
            return ""
        device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
        is_same = state.st_ino == found.inode and device == found.device
        # Tools that copy files set the time of their contents, but not that of the last change.
        if not is_same or state.st_ctime > self._begin - _SETTLED:
            return ""
        offset = found.offset + begin - found.begin
        times = f"{state.st_mtime_ns} {state.st_ctime_ns}"
        return f"{found.path} {state.st_ino} {state.st_size} {times} {offset}"


def _mappings() -> list[_Mapping]:
    """The mappings of files that this process only reads, by address."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    mappings = []
    for line in lines:
        match line.split(maxsplit=5):
            case [addresses, rights, offset, device, inode, path] if rights[:2] == "r-":
                begin, end = (int(address, 16) for address in addresses.split("-"))
                place = begin, end, int(offset, 16)
                mappings.append(_Mapping(*place, device, int(inode), path))
            case _:
                pass
    return mappings
