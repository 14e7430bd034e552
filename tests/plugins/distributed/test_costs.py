"""The bytes that a program is predicted to send are those that its workers send."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.distributed import communication
from relaxpy.relax import get_pipeline
from relaxpy.relax.training import DataParallel, SetupTrainer
from relaxpy.relax.training.loss import MSELoss
from relaxpy.relax.training.optimizer import SGD
from relaxpy.script import from_source, ir as I, relax as R
from tests.plugins.distributed.team import Counter, Team

ROOT = Path(__file__).parents[3]
LLAMA = ROOT / "examples" / "scaling" / "tensor_parallel.py"


def counted(mod: IRModule, workers: int, args: list[Any], func_name: str = "main") -> int:
    """The bytes that the busiest worker has sent or received."""
    team = Team(workers)
    members = [Counter(team, rank) for rank in range(workers)]
    run = relaxpy.compile(mod)[func_name]
    team.run_as(members, run, *([arg] * workers for arg in args))
    return max(max(member.counts) for member in members)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(
    "call",
    [
        "allreduce(x)",
        "allreduce(x, 'max')",
        "allgather(x, {0})",
        "reduce_scatter(x, {0})",
        "broadcast_from_worker0(x)",
        "reduce_to_worker0(x)",
        "scatter_from_worker0(x, {0})",
        "gather_to_worker0(x, {0})",
    ],
)
def test_each_operator_sends_what_is_predicted(call: str, workers: int) -> None:
    text = f"""
@R.function(pure=False)
def main(x: R.Tensor((8, 6), "float32")):
    return R.ccl.{call.format(workers)}
"""
    mod = IRModule({"main": from_source(text)})
    x = np.ones((8, 6), "float32")
    assert counted(mod, workers, [x]) == communication(mod, workers).sent


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
def test_a_block_of_a_llama_sends_what_is_predicted(mesh: tuple[int, ...]) -> None:
    example = runpy.run_path(str(LLAMA))
    mod = get_pipeline("distributed")(example["block"](mesh))
    sent = communication(mod)
    assert sent.workers == math.prod(mesh)
    summed = [call for call in sent.calls if call.op == "ccl.allreduce"]
    assert len(summed) == 2  # after attention, and after the hidden units
    # Counted worker by worker, the busiest of one call needs not be that of another.
    found = counted(mod, sent.workers, example["operands"]())
    assert found == pytest.approx(sent.sent, rel=0.01)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_of_training_sends_its_gradients(workers: int) -> None:
    @I.ir_module
    class Line:
        I.module_attrs({"param_num": 1, "state_num": 0})

        @R.function
        def backbone(x: R.Tensor((4, 64), "float32"), w: R.Tensor((64, 32), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                R.output(y)
            return y

    infos = [R.Tensor((4, 32), "float32")] * 2
    mod = DataParallel()(SetupTrainer(MSELoss(), SGD(0.1), infos)(Line))
    name = "backbone_loss_adjoint"
    sent = communication(mod, workers, name).sent
    args = [np.ones(shape, "float32") for shape in ((4, 64), (64, 32), (4, 32))]
    assert counted(mod, workers, args, name) == pytest.approx(sent, abs=8)
    assert sent == pytest.approx(2 * 64 * 32 * 4 * (workers - 1) / workers, rel=0.01)


def test_the_table_of_the_page_is_what_its_program_prints(tmp_path, capsys) -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    program = page[page.index("## A model of 7 billion") :].split("```")[1].removeprefix("python")
    (tmp_path / "costs.py").write_text(program, encoding="utf-8")
    runpy.run_path(str(tmp_path / "costs.py"), {"I": I, "R": R})
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 7
    assert "\n" + "\n".join(rows) + "\n" in page
