"""The program of the page runs in Pyodide, the Python of browsers, which node starts here.

`npm install pyodide` in a folder, and RELAXPY_PYODIDE names its `node_modules/pyodide`. NumPy and
other packages of Pyodide come from its public address, unless their wheels are in that folder.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.test_docs import program_without_onnx

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("RELAXPY_PYODIDE", "/nonexistent"))
ADDRESS = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/pyodide-lock.json"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no node here"),
    pytest.mark.skipif(
        not (FOLDER / "pyodide.mjs").exists(),
        reason="RELAXPY_PYODIDE names no folder of the npm package pyodide",
    ),
    pytest.mark.timeout(900),
]


def has_numpy() -> bool:
    """Whether NumPy for Pyodide is in the folder, or its address can be reached."""
    lock = json.loads((FOLDER / "pyodide-lock.json").read_text("utf-8"))
    if (FOLDER / lock["packages"]["numpy"]["file_name"]).exists():
        return True
    try:
        with urllib.request.urlopen(ADDRESS, timeout=10):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [found] = folder.iterdir()
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/in-the-browser.md", "docs/language.md"])
def test_the_programs_of_a_page_run_in_pyodide(page, wheel, tmp_path) -> None:
    if not has_numpy():
        pytest.skip("neither wheels of Pyodide nor its address are within reach")
    program = tmp_path / "program.py"
    text = program_without_onnx(page, tmp_path)
    program.write_text(f"{text}\nprint('the end')\n", "utf-8")
    script = ROOT / "docs" / "static" / "in-browser.js"
    command = [NODE or "", str(Path(__file__).with_name("pyodide_run.mjs"))]
    command += [str(path) for path in (FOLDER, wheel, script, program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the end\n"), done.stdout


PARTS = """
import sys, importlib
sys.path.append("/wheel.zip")
for name in MODULES:
    importlib.import_module(name)
from relaxpy.support import missing
print("threads" , end=" ")
import threading
try:
    threading.Thread(target=int).start()
except RuntimeError:
    print("do not start")
"""


def test_modules_that_need_no_numpy_are_imported_in_pyodide(wheel, tmp_path) -> None:
    """So much of it runs without the packages of Pyodide."""
    names = ["relaxpy", "relaxpy.support", "relaxpy.support.missing", "relaxpy.support.lazy"]
    (tmp_path / "program.py").write_text(PARTS.replace("MODULES", repr(names)), "utf-8")
    source = """
    import { readFileSync } from "node:fs";
    const [folder, wheel, script, program] = process.argv.slice(1);
    const { loadPyodide } = await import(`${folder}/pyodide.mjs`);
    const { run } = await import(script);
    const python = await loadPyodide({ indexURL: folder });
    python.FS.writeFile("/wheel.zip", new Uint8Array(readFileSync(wheel)));
    run(python, readFileSync(program, "utf8"), (text) => process.stdout.write(text));
    """
    script = ROOT / "docs" / "static" / "in-browser.js"
    command = [NODE or "", "--input-type=module", "-e", source]
    command += [str(path) for path in (FOLDER, wheel, script, tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "threads do not start\n", done.stdout + done.stderr[-2000:]
