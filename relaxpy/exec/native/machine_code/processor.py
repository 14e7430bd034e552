"""Fingerprints of this CPU, of the installed llvmlite and of relaxpy, without importing llvmlite.

They are parts of cache keys. LLVM's own description of the CPU is cached too, and holds as long as
the system describes the CPU in the same way.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from typing import Final

import ml_dtypes
import numpy as np

from relaxpy import __version__
from relaxpy.exec.machine.process import process
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.support.imported import FOLDER, IMPORTED, is_younger

_EXECUTOR: Final = os.path.join(FOLDER, "exec")
"""The folder with all code that writes machine code, loads it, or shares tables with it."""
_SETTINGS: Final = ("machine/platforms.py", "machine/process.py")
"""The files beside those of this folder that decide how LLVM is asked."""


@cache
def processor() -> str:
    """The system's description of the first CPU; empty if unknown."""
    return process().description()


def generator() -> str:
    """A fingerprint of the installed llvmlite and our options for it; empty if unknown.

    It is also empty if nothing is kept on disk, or once files have changed since the import.
    """
    found = _generator() if disk_cache.directory() else ""
    return "" if IMPORTED.has_changed() else found


@cache
def _generator() -> str:
    _files()
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    folder = os.path.dirname(spec.origin)
    here = os.path.dirname(__file__)
    own = (os.path.join(here, name) for name in sorted(os.listdir(here)) if name.endswith(".py"))
    settings = (os.path.join(_EXECUTOR, name) for name in _SETTINGS)
    try:
        state = _contents([os.path.join(folder, "_version.py"), *own, *settings])
        library = os.stat(os.path.join(folder, "binding", process().system.llvm))
    except OSError:
        return ""
    # Seconds are what layers of container images keep.
    return f"{state} {library.st_size} {int(library.st_mtime)}"


def interface() -> str:
    """The fingerprint that code and the process linking it must share; empty if unknown.

    It covers the executor, the objects of Python and of NumPy, and the versions of relaxpy and its
    dependencies. It is a hash of the contents of files, which other installations share, and is
    cached by their state. It is empty once files have changed since the import.
    """
    found = _interface()
    return "" if IMPORTED.has_changed() else found


@cache
def _interface() -> str:
    inside = f"{_EXECUTOR}{os.sep}"
    files = [file for file in _files() if file[0].startswith(inside)]
    if not files:
        return ""
    python = sys.implementation.name, *map(str, sys.version_info[:2])
    versions = *python, *_versions()
    key = disk_cache.key_of("interface", *versions, _hash(files), _record())
    stored = disk_cache.load(key)
    if stored is not None:
        return bytes(stored).decode(errors="replace")
    try:
        found = disk_cache.key_of(*versions, _contents(sorted(path for path, _ in files)))
    except OSError:
        return ""
    if any(is_younger(state) for _, state in files_in(_EXECUTOR)):
        IMPORTED.note()
        return ""
    disk_cache.store(key, [found.encode()])
    return found


def package() -> str:
    """A fingerprint of relaxpy, as this process runs it; empty if unknown.

    It covers all files, the versions, and the Python. It is empty once files have changed since
    the import.
    """
    files = _files()
    if not files or IMPORTED.has_changed():
        return ""
    return disk_cache.key_of(sys.version, *_versions(), _hash(files), _record())


def _versions() -> tuple[str, ...]:
    return __version__, np.__version__, ml_dtypes.__version__


@cache
def _record() -> str:
    """A hash of the list of installed files, with theirs; empty if relaxpy was not installed.

    Files of two builds may have the same sizes and times: tools for images set these.
    """
    try:
        return _contents([os.path.join(f"{FOLDER}-{__version__}.dist-info", "RECORD")])
    except OSError:
        return ""


@cache
def _files() -> Sequence[tuple[str, str]]:
    """The Python files of relaxpy with their sizes and times; none if they are not on disk.

    Times have seconds, as in the layers of container images.
    """
    IMPORTED.take()
    found = files_in(FOLDER)
    if any(is_younger(state) for _, state in found):
        IMPORTED.note()
    return [(path, f"{state.st_size} {int(state.st_mtime)}") for path, state in found]


def files_in(folder: str) -> Sequence[tuple[str, os.stat_result]]:
    """The Python files in a folder and below; none if there are none on disk."""
    found: list[tuple[str, os.stat_result]] = []
    left = [folder]
    try:
        for at in left:
            with os.scandir(at) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.endswith(".py"):
                        found.append((entry.path, entry.stat()))
                    elif entry.is_dir() and entry.name != "__pycache__":
                        left.append(entry.path)
    except OSError:
        return ()
    return found


def _hash(files: Sequence[tuple[str, str]]) -> str:
    lines = chain.from_iterable(files)
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


def _contents(paths: Sequence[str]) -> str:
    """A hash of files. Errors: OSError."""
    state = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        state.update(b"%d:" % len(content))
        state.update(content)
    return state.hexdigest()
