"""Parts that are left out: each folder of `relaxpy/plugins`, and `relaxpy/tvm`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "relaxpy"
PROGRAM = """
import importlib, pydoc
import numpy as np
import relaxpy
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y


x, w = np.ones((3, 4), "float32"), np.full((4, 8), -1, "float32")
w[:, 1] = 2
for target in ("native", "numpy"):
    assert (relaxpy.compile(Module, target=target)["main"](x, w) == np.maximum(x @ w, 0)).all()
assert relaxpy.ir.structural_equal(relaxpy.ir.load_json(relaxpy.ir.save_json(Module)), Module)
assert relaxpy.get_pipeline("default")(Module)["main"]
assert relaxpy.get_global_func("no.such.function", allow_missing=True) is None
for name in ("relaxpy", "relaxpy.ir", "relaxpy.relax", "relaxpy.tir", "relaxpy.relax.transform"):
    assert pydoc.render_doc(importlib.import_module(name))
    exec(f"from {name} import *", {})
for name in relaxpy.__all__:
    assert hasattr(relaxpy, name), name
"""
#: What is asked where a part is left out, and where one is that it needs.
ASKED = {
    "cli": "import relaxpy.__main__",
    "distributed": "from relaxpy.distributed import use",
    "importing": "from relaxpy.relax.frontend.onnx import from_onnx",
    "llm": "relaxpy.llm.load",
    "nn": "from relaxpy.relax.frontend.nn import Linear",
    "onnx": "from relaxpy.relax.frontend.onnx import from_onnx",
    "pictures": "Module.graph()",
    "relay": "relaxpy.relay.var",
    "schedule": "relaxpy.tir.Schedule",
    "testing": "from relaxpy.testing import random_inputs",
    "torch": "from relaxpy.relax.frontend.torch import from_fx",
    "training": "relaxpy.relax.training.Trainer",
    "tvm": "relaxpy.tir.analysis.estimate_tir_flops",
    "weights": "from relaxpy.relax.frontend.weights import open_weights",
}


@pytest.mark.parametrize("part", ASKED)
def test_relaxpy_works_without_a_part_and_says_what_is_left_out(part: str, tmp_path: Path) -> None:
    gone = "tvm" if part == "tvm" else f"plugins/{part}"
    for file in PACKAGE.rglob("*"):
        name = file.relative_to(PACKAGE)
        if file.is_file() and not name.is_relative_to(gone):
            (tmp_path / "relaxpy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "relaxpy" / name).symlink_to(file)
    (tmp_path / "program.py").write_text(f"{PROGRAM}\nprint('it works')\n{ASKED[part]}\n")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "it works\n", done.stderr
    message = done.stderr.rpartition("\n  File ")[2]
    place = gone.replace("/", ".")
    assert "is not installed" in message
    assert part == "pictures" or f"relaxpy.{place} is a part" in message
    assert done.returncode == 1


def test_each_part_is_left_out_once() -> None:
    folders = {path.parent.name for path in PACKAGE.rglob("manifest.json")}
    assert folders == ASKED.keys()
