"""When this process imported relaxpy: files that are younger are not those that it runs.

Packages are upgraded while processes use them, and modules are imported when they are needed. What
such a process computes belongs to no version, so it is not kept for others.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Final

_BEGIN: Final = time.time()
FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package."""
_PACKAGES: Final = ("relaxpy", "llvmlite")
"""The packages whose code decides about machine code."""


def _place() -> tuple[int, int] | None:
    """The identity of the folder, which another one may replace; None if it is in an archive."""
    try:
        found = os.stat(FOLDER)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_PLACE: Final = _place()


def is_younger(found: os.stat_result) -> bool:
    """True if a file may have changed since this process imported relaxpy.

    Tools that copy files set the time of their contents, but not that of the last change. Where
    files have no owners, the latter is the time at which they were created.
    """
    has_changes = hasattr(os, "geteuid")
    changed = found.st_ctime if has_changes else max(found.st_ctime, found.st_mtime)
    return changed > _BEGIN


class Imported:
    """The modules of these packages that this process has imported, each asked once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._count = 0
        self._has_changed = False

    def take(self) -> None:
        """Take the modules that are imported now for asked: all files of the package will be."""
        self._known.update(_modules())

    def has_changed(self) -> bool:
        """True if files of the packages have changed since this process imported relaxpy.

        Those of relaxpy that are imported later are asked by the next call.
        """
        if self._count != len(sys.modules):
            self._count = len(sys.modules)
            new = {*_modules()} - self._known
            self._known |= new
            if any(map(_is_young, new)):
                self.note()
        if not self._has_changed and _place() != _PLACE:
            self.note()
        return self._has_changed

    def note(self) -> None:
        """Note that a file has changed."""
        self._has_changed = True


def _modules() -> Iterator[str]:
    return (name for name in tuple(sys.modules) if name.partition(".")[0] in _PACKAGES)


def _is_young(module: str) -> bool:
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        return path is not None and is_younger(os.stat(path))
    except OSError:
        return True  # it was removed


IMPORTED: Final = Imported()
