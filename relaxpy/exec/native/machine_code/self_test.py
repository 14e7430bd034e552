"""The self-test of native code on systems where nobody has confirmed that it runs.

A child process compiles a few kernels and compares their results with those of NumPy, before native
code becomes the default target. Its result is kept in the disk cache, for this CPU, these
versions and this code.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

from relaxpy.errors import Diagnostic, warn
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.processor import generator, interface, processor

_PROGRAM = "relaxpy.exec.inspect.self_test"
"""The module that the child runs."""
_SECONDS = 120
"""The time after which a child that has not ended is ended."""
_LONGEST = 200
"""The most characters of what a child prints that a message has."""


TILED: Final = "matrix tiles"
"""The kind of code that is tested on every system before it is used."""
_KIND: Final = "RELAXPY_SELF_TEST"
"""The variable of the child with the kind of code that it tests."""


def is_testing(kind: str) -> bool:
    """True if this process is a child that tests that kind of code."""
    return os.environ.get(_KIND) == kind


def self_test(kind: str = "") -> str:
    """The reason why native code, or a kind of it, is not used; empty if it agrees with NumPy.

    If it is found now, there is a warning. A child that cannot be started is tried again next time.
    """
    if find_spec("llvmlite") is None:
        return "the self-test of native code needs llvmlite, which is not installed"
    parts = processor(), generator(), interface()
    key = disk_cache.key_of("self-test", kind, *parts) if all(parts) else ""
    stored = disk_cache.load(key) if key else None
    if stored is not None:
        return bytes(stored).decode(errors="replace")
    try:
        problem = _run(kind)
    except OSError as error:
        problem = f"the self-test of native code cannot be started: {error}"
    else:
        if key:
            disk_cache.store(key, [problem.encode()])
    if problem:
        without, hint = f"native code has no {kind}", "please report this with relaxpy.doctor()"
        if not kind:
            without = "programs run on NumPy"
            hint = f'target="native" generates it all the same; {hint}'
        warn(Diagnostic(f"{without}: {problem}", hint=hint))
    return problem


def _run(kind: str) -> str:
    """Run the child; the problem that it found, or that it had."""
    import subprocess  # its import would take a tenth of the start of programs

    folder = ""
    with suppress(OSError):  # the working directory may have been removed
        folder = os.getcwd()
    paths = os.pathsep.join(filter(None, (path or folder for path in sys.path)))
    environment = {**os.environ, "PYTHONPATH": paths, "RELAXPY_TARGET": "native", _KIND: kind}
    command = [sys.executable or "python", "-m", _PROGRAM]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the self-test of native code did not end in {_SECONDS} seconds"
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or [""]
        found = f" ({words[0][:_LONGEST]})" if words[0] else ""
        return f"the self-test of native code ended with code {done.returncode}{found}"
    return done.stdout.strip()[:_LONGEST]
