"""Fingerprints of this CPU, of the installed llvmlite and of relaxpy, without importing llvmlite.

They are parts of cache keys. LLVM's own description of the CPU is cached too, and holds as long as
the system describes the CPU in the same way.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Final

import numpy as np

from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.process import process

_SETTINGS: Final = ("machine.py", "objects.py")
"""The files of this package with the options of LLVM."""


@cache
def processor() -> str:
    """The system's description of the first CPU; empty if unknown."""
    return process().description()


@cache
def generator() -> str:
    """A fingerprint of the installed llvmlite and our options for it; empty if unknown."""
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    folder = os.path.dirname(spec.origin)
    own = [os.path.join(os.path.dirname(__file__), name) for name in _SETTINGS]
    state = hashlib.sha256()
    try:
        for path in (os.path.join(folder, "_version.py"), *own):
            with open(path, "rb") as file:
                state.update(file.read())
        library = os.stat(os.path.join(folder, "binding", process().system.llvm))
    except OSError:
        return ""
    # Seconds are what layers of container images keep.
    return f"{state.hexdigest()} {library.st_size} {int(library.st_mtime)}"


@cache
def interface() -> str:
    """The ABI fingerprint that code and the process linking it must share; empty if unknown.

    It covers the objects of Python and of NumPy, and the tables and the pool of this version. It is
    a hash of the contents of files, which other installations share, and is cached by their state.
    """
    native = os.path.dirname(os.path.dirname(__file__))
    folders = native, os.path.join(os.path.dirname(native), "graph")
    if not (state := state_of_files(*folders)):
        return ""
    python = f"{sys.implementation.name, *sys.version_info[:2]} {np.__version__}"
    key = disk_cache.key_of("interface", python, state)
    stored = disk_cache.load(key)
    if stored is not None:
        return bytes(stored).decode(errors="replace")
    found = hashlib.sha256(python.encode())
    paths = [os.path.join(at, n) for top in folders for at, _, names in os.walk(top) for n in names]
    for path in sorted(path for path in paths if path.endswith(".py")):
        with open(path, "rb") as file:
            found.update(file.read())
    disk_cache.store(key, [found.hexdigest().encode()])
    return found.hexdigest()


def state_of_files(*folders: str) -> str:
    """The sizes and times of the Python files in folders; empty if there are none on disk.

    Times have seconds, as in the layers of container images.
    """
    lines: list[str] = []
    left = list(folders)
    try:
        for folder in left:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.endswith(".py"):
                        found = entry.stat()
                        lines.append(f"{entry.path} {found.st_size} {int(found.st_mtime)}\n")
                    elif entry.is_dir() and entry.name != "__pycache__":
                        left.append(entry.path)
    except OSError:
        return ""
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest() if lines else ""
