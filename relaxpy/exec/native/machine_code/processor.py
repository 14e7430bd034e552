"""Fingerprints of this CPU and of the installed llvmlite, without an import of llvmlite.

Both are parts of cache keys. LLVM's own description of the CPU is cached too, and holds as long as
the system describes the CPU in the same way.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.util import find_spec
from typing import Final

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
