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

    It covers the objects of Python and of NumPy, and the tables and the pool of this version.
    """
    native = os.path.dirname(os.path.dirname(__file__))
    graph = os.path.join(os.path.dirname(native), "graph")
    python = sys.implementation.name, *sys.version_info[:2]
    state = hashlib.sha256(f"{python} {np.__version__}".encode())
    folders = [(folder, names) for root in (native, graph) for folder, _, names in os.walk(root)]
    paths = [os.path.join(folder, name) for folder, names in folders for name in names]
    paths = sorted(path for path in paths if path.endswith(".py"))
    for path in paths:
        with open(path, "rb") as file:
            state.update(file.read())
    return state.hexdigest() if paths else ""
