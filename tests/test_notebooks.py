"""Notebooks run from top to bottom on the Python of the tests, and show what is saved in them.

`make notebooks` saves the outputs of a new run.
"""

import asyncio
import copy
import os
import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from relaxpy.ir.core.target import default_target
from relaxpy.support.progress import SETTING

FOLDER = Path(__file__).parents[1] / "notebooks"
#: What a notebook needs that is not available everywhere.
NEEDED = {
    "inside_a_language_model.ipynb": "tokenizers",
    "onnx_model.ipynb": "onnxruntime",
    "pytorch_model.ipynb": "torch",
}
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
#: The tag of cells whose outputs are times, or depend on the machine or on what is installed.
VARIES = "varies"


class ThisInterpreter(AsyncKernelManager):
    """Starts the kernel of the running Python, whatever kernels are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, language="python", display_name="Python")


def executed(notebook: NotebookNode) -> NotebookNode:
    """A copy of the notebook with the outputs of a new run."""
    fresh = copy.deepcopy(notebook)
    os.environ[SETTING] = "0"  # the kernel has it, too
    client = NotebookClient(
        fresh,
        timeout=240,
        kernel_manager_class=ThisInterpreter,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    asyncio.run(client.async_execute())  # execute() leaves its event loop open
    fresh.metadata = notebook.metadata  # without the version of Python
    return fresh


def shown(notebook: NotebookNode) -> list[str]:
    """The text of outputs, by line, without colours, addresses, paths of cells and what varies."""
    lines = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        lines.append(f"--- the cell {cell.id}")
        if VARIES in cell.metadata.get("tags", []):
            continue
        text = "".join(map(text_of, cell.outputs))
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        text = re.sub(r"\b0x[0-9a-f]{6,}", "0x...", text)
        text = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "<cell>", text)
        lines += text.splitlines()
    return lines


def text_of(output: NotebookNode) -> str:
    """The text of an output; a stream may come in several."""
    match output.output_type:
        case "stream":
            return str(output.text)
        case "error":
            return "\n".join(output.traceback) + "\n"
        case _:
            return output.data.get("text/plain", ", ".join(sorted(output.data))) + "\n"


def difference(saved: NotebookNode, fresh: NotebookNode) -> str:
    """A diff of what two runs of a notebook show, or nothing."""
    return "\n".join(
        unified_diff(shown(saved), shown(fresh), "the saved outputs", "this run", lineterm="")
    )


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_what_is_saved_in_it(name: str, pytestconfig: pytest.Config) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    saved = nbformat.read(FOLDER / name, as_version=4)
    fresh = executed(saved)
    if default_target()[0] != "native":
        return  # reports and the last bits of floats are those of another target
    if pytestconfig.getoption("--update-golden"):
        nbformat.write(fresh, FOLDER / name)
    elif found := difference(saved, fresh):
        pytest.fail(f"{name} shows something else; to accept it: make notebooks\n{found}")


def test_the_models_of_a_notebook_need_not_be_there(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    cells = nbformat.read(FOLDER / "onnx_model.ipynb", as_version=4).cells
    last = next(k for k, cell in enumerate(cells) if "Where the time goes" in cell.source)
    names: dict[str, Any] = {}
    exec("\n".join(cell.source for cell in cells[:last] if cell.cell_type == "code"), names)
    probabilities = names["expected"][0]
    assert probabilities.max() > 2 * probabilities.min(), "all are as likely: nothing is compared"


def book(*outputs: NotebookNode, tags: tuple[str, ...] = ()) -> NotebookNode:
    """A notebook with one cell."""
    cell = new_code_cell("f()", id="one", outputs=list(outputs), metadata={"tags": list(tags)})
    return new_notebook(cells=[cell])


def printed(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def failed(text: str) -> NotebookNode:
    return new_output("error", ename="E", evalue="e", traceback=[text])


def value(text: str, **others: str) -> NotebookNode:
    return new_output("execute_result", {"text/plain": text, **others}, execution_count=1)


@pytest.mark.parametrize(
    ("saved", "fresh"),
    [
        (book(printed("a\n")), book(printed("b\n"))),
        (book(printed("a\n")), book()),
        (book(), book(value("3"))),
        (book(value("3")), book(value("4"))),
        (book(failed("E: x")), book(failed("E: y"))),
        (book(value("3")), book(failed("E: y"))),
        (book(printed("a\n"), tags=("other",)), book(printed("b\n"), tags=("other",))),
        (book(printed("0x3f\n")), book(printed("0x4f\n"))),  # a number, no address
    ],
)
def test_other_outputs_are_found(saved: NotebookNode, fresh: NotebookNode) -> None:
    assert "--- the cell one" in difference(saved, fresh)


@pytest.mark.parametrize(
    ("saved", "fresh"),
    [
        (book(printed("a\nb\n")), book(printed("a\n"), printed("b\n"))),
        (book(value("<f at 0x7f00aa000001>")), book(value("<f at 0x7f00aa0000ff>"))),
        (
            book(printed("/tmp/ipykernel_1/2.py:3:4: E")),
            book(printed("/a/ipykernel_5/6.py:3:4: E")),
        ),
        (book(failed("\x1b[31mE\x1b[0m: x")), book(failed("E: x"))),
        (book(value("p", **{"text/html": "a"})), book(value("p", **{"text/html": "b"}))),
        (book(printed("3 ms\n"), tags=(VARIES,)), book(printed("4 ms\n"), tags=(VARIES,))),
    ],
)
def test_what_varies_is_not_compared(saved: NotebookNode, fresh: NotebookNode) -> None:
    assert difference(saved, fresh) == ""


def test_a_new_run_takes_the_place_of_saved_outputs() -> None:
    cells = [
        new_code_cell("x = 1\nprint(x)", id="print", outputs=[printed("2\n")]),
        new_code_cell("x", id="value"),
        new_code_cell("1 / 0", id="error", metadata={"tags": ["raises-exception"]}),
    ]
    saved = new_notebook(cells=cells)
    fresh = executed(saved)
    assert [len(cell.outputs) for cell in saved.cells] == [1, 0, 0]
    names = ["--- the cell print", "--- the cell value", "--- the cell error"]
    assert shown(fresh)[:5] == [names[0], "1", names[1], "1", names[2]]
    assert shown(fresh)[-1] == "ZeroDivisionError: division by zero"
    assert "execution" not in fresh.cells[0].metadata
    assert difference(saved, fresh)
    assert not difference(fresh, executed(fresh))
