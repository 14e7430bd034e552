"""Paths of files that users pass, and atomic writes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike, fsencode, fspath
from typing import IO, TYPE_CHECKING

from relaxpy.errors import unexpected

if TYPE_CHECKING:
    from pathlib import Path


def as_path(path: object) -> Path:
    """The path of a file. Errors: MisuseError (also TypeError, ValueError): it is not one."""
    from pathlib import Path  # slow, and programs that are not saved need none

    if isinstance(path, (str, PathLike)) and isinstance(text := fspath(path), str):
        with suppress(UnicodeEncodeError):
            if b"\0" not in fsencode(text):
                return Path(text)
    raise unexpected(path, "expected the path of a file")


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
