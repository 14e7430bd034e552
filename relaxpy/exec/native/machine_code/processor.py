"""Fingerprints of this CPU and of the installed llvmlite, without an import of llvmlite.

Both are parts of cache keys. LLVM's own description of the CPU is cached too, and holds as long as
Linux describes the CPU in the same way.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from importlib.util import find_spec
from typing import Final

_CPUINFO: Final = "/proc/cpuinfo"
_FIELDS: Final = frozenset(
    (
        *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
        "Features",
    )
)
"""The fields of /proc/cpuinfo, for x86-64 and aarch64, that identify a CPU."""
_SETTINGS: Final = ("machine.py", "objects.py")
"""The files of this package with the options of LLVM."""


@cache
def processor() -> str:
    """Linux's description of the first CPU; empty if unknown."""
    found = []
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace", buffering=8192) as file:
            for line in file:
                if line.isspace():  # the next CPU
                    break
                name, _, value = line.partition(":")
                if name.strip() in _FIELDS:
                    found.append(f"{name.strip()}: {value.strip()}")
    except OSError:
        return ""
    return "\n".join([os.uname().machine, *found]) if found else ""


_CAPABILITIES: Final = {
    16: {8: "lse", 10: "fullfp16", 12: "rdm", 20: "dotprod"},
    26: {13: "i8mm", 14: "bf16"},
}
"""LLVM's features by the bits of AT_HWCAP and AT_HWCAP2 of Linux on AArch64."""


def arm_features() -> list[str]:
    """The features of this CPU that LLVM does not report on AArch64; none on other CPUs."""
    if os.uname().machine != "aarch64":
        return []
    read = ctypes.CDLL(None).getauxval
    read.argtypes, read.restype = (ctypes.c_ulong,), ctypes.c_ulong
    return [
        f"+{feature}"
        for word, features in _CAPABILITIES.items()
        for bit, feature in features.items()
        if read(word) >> bit & 1
    ]


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
        library = os.stat(os.path.join(folder, "binding", "libllvmlite.so"))
    except OSError:
        return ""
    # Seconds are what layers of container images keep.
    return f"{state.hexdigest()} {library.st_size} {int(library.st_mtime)}"
