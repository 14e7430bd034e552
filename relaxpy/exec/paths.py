"""Paths of files that users pass."""

from __future__ import annotations

from contextlib import suppress
from os import PathLike, fsencode, fspath
from pathlib import Path

from relaxpy.errors import MisuseError


def as_path(path: object) -> Path:
    """The path of a file. Errors: MisuseError (also TypeError, ValueError): it is not one."""
    if isinstance(path, (str, PathLike)) and isinstance(text := fspath(path), str):
        with suppress(UnicodeEncodeError):
            if b"\0" not in fsencode(text):
                return Path(text)
    raise MisuseError(f"expected the path of a file, found {path!r:.60}", about=path)
