"""The disk cache: a directory of files by key, shared by processes.

A file starts with its size and the hash of its key and of its contents, is written under another
name and renamed, and can be written by its owner alone. Failures here are not errors: without a
trusted directory, code is generated again. Files are opened relative to the open directory, or by
their paths on Windows, where a user's directory cannot be written by others.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.exec.machine.platforms import PAGE_BYTES
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Kept
from relaxpy.support.dataclass import dataclass

SWITCH: Final = "RELAXPY_CACHE"
"""The environment variable: 0 disables the cache, "code" caches machine code but no programs."""
DIRECTORY: Final = "RELAXPY_CACHE_DIR"
"""The environment variable with the directory, instead of `relaxpy` in that of the user."""
_MAGIC: Final = b"relaxpy object 4\n".ljust(24)
_SIZE: Final = struct.Struct("<Q")
_HEADER: Final = len(_MAGIC) + _SIZE.size + hashlib.sha256().digest_size
"""Bytes before the contents, which are aligned like arrays."""
_SUFFIX: Final = ".o"
_UNFINISHED: Final = ".tmp"
_NUMBERS: Final = count()


_Place: TypeAlias = int | str
"""The open directory, or its path."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The state of the cache; without `problem`, it is used.

    Units: bytes.
    """

    path: str
    files: int
    size: int
    problem: str


def key_of(*parts: str) -> str:
    """The key of a value that depends on `parts` alone."""
    state = hashlib.sha256()
    for part in parts:
        content = part.encode()
        state.update(b"%d:" % len(content))
        state.update(content)
    return state.hexdigest()


def load(key: str) -> memoryview | None:
    """The entry stored under `key`, if it exists and is intact; the file is memory-mapped.

    Errors:
        MisuseError: RELAXPY_CACHE is not 0, 1 or code.
    """
    try:
        with _directory() as place:
            path, inside = _in(place, f"{key}{_SUFFIX}")
            # A pipe is opened without waiting for its other end.
            descriptor = os.open(path, os.O_RDONLY | _flags("NOFOLLOW", "NONBLOCK"), **inside)
            with open(descriptor, "rb"):
                found = os.fstat(descriptor)
                if _problem(found, stat.S_ISREG) or found.st_size < _HEADER:
                    return None
                content = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            # What is longer than it says is not read.
            (size,) = _SIZE.unpack_from(content, len(_MAGIC))
            if size != len(content) or content[:_HEADER] != _header(key, content[_HEADER:]):
                return None
            with suppress(OSError):  # the time of the last use; a directory may be read-only
                os.utime(path, **inside)
            return content[_HEADER:]
    except OSError:
        return None


def store(key: str, content: Iterable[bytes | memoryview]) -> None:
    """Store the concatenated `content` under `key`, if there is a directory.

    Errors:
        MisuseError: RELAXPY_CACHE is not 0, 1 or code.
    """
    unfinished = f"{key}.{os.getpid()}.{next(_NUMBERS)}{_UNFINISHED}"
    try:
        with _directory(create=True) as place:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flags("NOFOLLOW")
            new, inside = _in(place, unfinished)
            path, _ = _in(place, f"{key}{_SUFFIX}")
            try:
                with open(os.open(new, flags, 0o600, **inside), "wb") as file:
                    state = hashlib.sha256(key.encode())
                    file.write(bytes(_HEADER))
                    for part in content:
                        state.update(part)
                        file.write(part)
                    size = file.tell()
                    file.seek(0)
                    file.write(_MAGIC + _SIZE.pack(size) + state.digest())
                os.replace(
                    new, path, **{f"{end}_{n}": v for n, v in inside.items() for end in _ENDS}
                )
            except OSError:
                with suppress(OSError):
                    os.unlink(new, **inside)
                raise
            _sweep.after(size, place)
    except OSError:
        return


_ENDS: Final = ("src", "dst")


def _in(place: _Place, name: str) -> tuple[str, dict[str, Any]]:
    """The path of a file in the directory, and the keywords of functions that take it."""
    return (os.path.join(place, name), {}) if isinstance(place, str) else (name, {"dir_fd": place})


def _flags(*names: str) -> int:
    """The flags with which files are opened, as far as the system has them."""
    return sum(getattr(os, f"O_{name}", 0) for name in (*names, "CLOEXEC", "BINARY", "NOINHERIT"))


def usage() -> Usage:
    """The directory, its size, and the reason if it is not used."""
    path = directory() or ""
    if not path:
        is_off = os.environ.get(SWITCH) == "0"
        return Usage("", 0, 0, f"{SWITCH}=0" if is_off else f"no folder; {DIRECTORY} names one")
    try:
        with _directory() as place:
            sizes = [_space(entry.st_size) for _, entry in _files(place)]
    except FileNotFoundError:
        return Usage(path, 0, 0, "")
    except OSError as error:
        return Usage(path, 0, 0, error.strerror or str(error))
    return Usage(path, len(sizes), sum(sizes), "")


def directory() -> str | None:
    """The path of the directory; None if the cache is disabled, or if there is no place for it.

    Errors:
        MisuseError: RELAXPY_CACHE is not 0, 1 or code.
    """
    switch = os.environ.get(SWITCH, "1")
    if switch not in ("0", "1", "code"):
        raise MisuseError(
            f"{SWITCH} is {switch!r}, expected 0, 1 or code",
            hint=f"{SWITCH}=0 keeps no code on disk; {DIRECTORY} is the directory for it",
        )
    if switch == "0":
        return None
    caches = process().caches()
    chosen = os.environ.get(DIRECTORY) or (caches and os.path.join(caches, "relaxpy"))
    with suppress(OSError):  # the working directory may have been removed
        return os.path.abspath(chosen) if chosen else None
    return None


def keeps_programs() -> bool:
    """True if whole programs are kept on disk, too.

    Errors:
        MisuseError: RELAXPY_CACHE is not 0, 1 or code.
    """
    return bool(directory()) and os.environ.get(SWITCH) != "code"


@contextmanager
def _directory(*, create: bool = False) -> Iterator[_Place]:
    """The open directory, or its path where files cannot be opened relative to it."""
    path = directory()
    if path is None:
        raise FileNotFoundError
    if create:
        os.makedirs(path, 0o700, exist_ok=True)
    if os.open not in os.supports_dir_fd:
        os.stat(path)
        yield path
        return
    place = os.open(path, os.O_RDONLY | _flags("DIRECTORY"))
    try:
        problem = _problem(os.fstat(place), stat.S_ISDIR)
        if problem:
            raise PermissionError(None, problem)
        yield place
    finally:
        os.close(place)


def _problem(found: os.stat_result, is_kind: Callable[[int], bool]) -> str:
    """The reason not to trust a file: users other than this one and root may write to it."""
    if not is_kind(found.st_mode):
        return "it is of another kind"
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    if found.st_mode & 0o022:
        return "other users can write it"
    return ""


def _header(key: str, content: bytes | memoryview) -> bytes:
    state = hashlib.sha256(key.encode())
    state.update(content)
    return _MAGIC + _SIZE.pack(_HEADER + len(content)) + state.digest()


def _files(place: _Place) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _UNFINISHED)):
                with suppress(OSError):  # another process has removed it
                    yield entry.name, entry.stat(follow_symlinks=False)


def clear() -> None:
    """Remove all files of the cache; those that another process removes meanwhile do not matter.

    Errors:
        OSError: the directory cannot be read, or others may write to it.
    """
    with suppress(FileNotFoundError), _directory() as place:
        for name, _ in [*_files(place)]:
            with suppress(FileNotFoundError):
                path, inside = _in(place, name)
                os.unlink(path, **inside)


def _space(size: int) -> int:
    """The bytes of the disk that a file takes: whole blocks."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


class _Sweep:
    """Limits the files of the directory, and their size.

    All processes together sweep once for each sixteenth of these limits that they write: one that
    writes few files seldom does.
    """

    def __init__(self) -> None:
        self._unswept = int.from_bytes(os.urandom(4), "little") / 2**36
        """The share of the limits."""

    def after(self, size: int, place: _Place) -> None:
        """Sweep the directory if a file of `size` bytes may have made it too large."""
        self._unswept += 1 / Kept.FILES + _space(size) / Kept.DISK
        if self._unswept > 1 / 16:
            self._unswept = 0
            self.now(place)

    def now(self, place: _Place) -> None:
        """Remove abandoned files, and the files that were used least recently.

        Where that takes long, it looks at some of the files, which have a share of the limits, and
        the next sweep goes on.
        """
        begin, limit = time.monotonic(), time.time() - Kept.ABANDONED
        with os.scandir(place) as entries:
            names = sorted(e.name for e in entries if e.name.endswith((_SUFFIX, _UNFINISHED)))
        start = int.from_bytes(os.urandom(4), "little") * len(names) >> 32
        found: list[tuple[float, int, str]] = []
        for number in range(len(names)):
            if time.monotonic() - begin > Kept.SWEEP:
                break
            name = names[number + start - len(names)]
            path, inside = _in(place, name)
            with suppress(OSError):  # another process has removed it
                state = os.stat(path, follow_symlinks=False, **inside)
                found.append((state.st_mtime, _space(state.st_size), name))
        share = len(found) / max(len(names), 1)
        total, left = sum(size for _, size, _ in found), len(found)
        for used, size, name in sorted(found):
            is_beyond = total > share * Kept.DISK or left > share * Kept.FILES
            if time.monotonic() - begin > 2 * Kept.SWEEP:
                break
            if used < limit if name.endswith(_UNFINISHED) else is_beyond:
                with suppress(OSError):
                    path, inside = _in(place, name)
                    os.unlink(path, **inside)
                total, left = total - size, left - 1


_sweep: Final = _Sweep()
