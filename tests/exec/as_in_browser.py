"""Runs programs on a Python with the facts of Pyodide, which runs in browsers.

`python -m tests.exec.as_in_browser FILE...` runs each file with names of its own. What differs from
CPython was read from Pyodide 314: threads do not start, and have no numbers of the system; CPUs
cannot be chosen; processes do not start; some modules are absent. Integers of 64 bits are not those
of indices there, which this does not simulate.
"""

from __future__ import annotations

import _thread
import os
import platform
import runpy
import sys
import sysconfig
import threading
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NoReturn

from typing_extensions import override

_ABSENT = frozenset(("llvmlite", "resource", "torch", "onnxruntime", "psutil"))
"""Modules of CPython and of its packages that are not there, or are others."""
_ABSENT_NAMES = {
    threading: ("get_native_id", "_get_native_id"),
    threading.Thread: ("native_id",),
    os: ("sched_getaffinity", "sched_setaffinity", "posix_spawn", "memfd_create"),
}


class _PathFinder(PathFinder):
    """Finds no module that is absent."""

    @override
    @classmethod
    def find_spec(cls, fullname: str, *args: Any, **options: Any) -> ModuleSpec | None:
        found = fullname.partition(".")[0] not in _ABSENT
        return super().find_spec(fullname, *args, **options) if found else None


def _no_thread(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("can't start new thread")


def _no_process(*_: Any) -> NoReturn:
    raise OSError(52, "Function not implemented")


def become_browser() -> None:
    """Take from this Python what Pyodide does not have."""
    for owner, names in _ABSENT_NAMES.items():
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    threading._HAVE_THREAD_NATIVE_ID = False  # type: ignore[attr-defined]
    for module in (_thread, threading):
        for name in _STARTERS & vars(module).keys():
            setattr(module, name, _no_thread)
    os.cpu_count = lambda: 1
    os.fork = _no_process
    platform.machine, platform.processor = lambda: "wasm32", lambda: ""
    for module in _ABSENT & sys.modules.keys():
        del sys.modules[module]
    sys.meta_path[:] = [_PathFinder if f is PathFinder else f for f in sys.meta_path]
    sysconfig.get_config_vars()  # read from a file that is named after the platform
    sys.platform = "emscripten"


_STARTERS = frozenset(
    f"{start}{name}"
    for start in ("", "_")
    for name in ("start_new_thread", "start_joinable_thread")
)


if __name__ == "__main__":
    # Both look at the system while they are imported.
    import ml_dtypes  # noqa: F401
    import numpy as np  # noqa: F401

    become_browser()
    for program in sys.argv[1:]:
        sys.argv[1:] = []
        runpy.run_path(program, run_name="__main__")
