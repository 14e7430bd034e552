"""Temporary directories, which are removed with the object that names them."""

from __future__ import annotations

import os
from shutil import rmtree
from tempfile import mkdtemp
from typing import Self
from weakref import finalize


class TempDirectory:
    """A new directory, which is removed at the end of a `with` block or with this object.

    Its path is `path`, or `custom_path` if that is passed. With `keep_for_debug` it stays.
    """

    def __init__(
        self, custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False
    ) -> None:
        if custom_path is None:
            self.path = mkdtemp()
        else:
            self.path = os.fspath(custom_path)
            os.makedirs(self.path)
        self._end = finalize(self, rmtree, self.path, ignore_errors=True)
        if keep_for_debug:
            self._end.detach()

    @property
    def temp_dir(self) -> str:
        """The path of the directory."""
        return self.path

    def relpath(self, name: str) -> str:
        """The path of a file in the directory, also written `directory / name`."""
        return os.path.join(self.path, name)

    __truediv__ = relpath

    def listdir(self) -> list[str]:
        """The names of the files in the directory."""
        return os.listdir(self.path)

    def remove(self) -> None:
        """Remove the directory and its files."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def tempdir(
    custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False
) -> TempDirectory:
    """A new temporary directory."""
    return TempDirectory(custom_path, keep_for_debug)
