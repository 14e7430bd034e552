"""Every notebook runs from top to bottom on the interpreter that runs the tests."""

import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
#: What a notebook needs that is not available everywhere.
NEEDED = {"onnx_model.ipynb": "onnxruntime", "pytorch_model.ipynb": "torch"}
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


class ThisInterpreter(AsyncKernelManager):
    """Starts the kernel of the running Python, whatever kernels are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, language="python", display_name="Python")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name: str) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    notebook = nbformat.read(FOLDER / name, as_version=4)
    NotebookClient(
        notebook,
        timeout=240,
        kernel_manager_class=ThisInterpreter,
        resources={"metadata": {"path": str(FOLDER)}},
    ).execute()
