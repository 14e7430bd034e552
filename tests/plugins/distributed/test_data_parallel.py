"""Workers that train together get what one gets from the whole batch."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, tir
from relaxpy.errors import RuntimeCheckError, TransformError
from relaxpy.relax.training import DataParallel, SetupTrainer, Trainer
from relaxpy.relax.training.loss import CrossEntropyLoss
from relaxpy.relax.training.optimizer import SGD, Adam, MomentumSGD, Optimizer
from relaxpy.script import ir as I, relax as R
from tests.plugins.distributed.team import Team


@I.ir_module
class Model:
    """Two layers, between them a normalisation with a running mean."""

    I.module_attrs({"param_num": 3, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor(("n", 6), "float32"),
        w: R.Tensor((6, 5), "float32"),
        v: R.Tensor((5, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        mean: R.Tensor((5,), "float32"),
        steps: R.Tensor((), "int64"),
    ):
        with R.dataflow():
            hidden = R.tanh(R.matmul(x, w))
            scores = R.add(R.matmul(hidden, v), b)
            kept = mean * R.const(0.9, "float32") + R.mean(hidden, axis=0) * R.const(0.1, "float32")
            counted = R.add(steps, R.const(1, "int64"))
            R.output(scores, kept, counted)
        return scores, kept, counted


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": SGD(0.1),
    "MomentumSGD": MomentumSGD(0.1, 0.9),
    "Adam": Adam(0.05),
}


@functools.cache
def compiled(optimizer: str, *, parallel: bool) -> tuple[IRModule, relaxpy.Executable]:
    mod = prepared(OPTIMIZERS[optimizer], parallel=parallel)
    return mod, relaxpy.compile(mod)


def prepared(optimizer: Optimizer, *, parallel: bool) -> IRModule:
    n = tir.Var("n", "int64")
    infos = [R.Tensor((n, 4), "float32"), R.Tensor((n,), "int64")]
    mod = SetupTrainer(CrossEntropyLoss(), optimizer, infos)(Model)
    return DataParallel()(mod) if parallel else mod


def initial(trainer: Trainer) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (6, 5), "v": (5, 4), "b": (4,)}
    trainer.load_params({k: rng.standard_normal(s).astype("float32") for k, s in shapes.items()})
    trainer.load_states({"mean": np.zeros(5, "float32"), "steps": np.array(0)})


def trained(mod: IRModule, program: Any, x: Any, y: Any) -> dict[str, Any]:
    """The losses of each step, and the values after the last."""
    trainer = Trainer(mod, program)
    initial(trainer)
    losses = [float(trainer.update(a, b)) for a, b in zip(x, y, strict=True)]
    return {"losses": losses, **trainer.export_params(), **trainer.export_states()}


@pytest.mark.each_choice
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_workers_train_like_one(optimizer: str, workers: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((12, 8, 6)).astype("float32")
    y = rng.integers(0, 4, (12, 8))
    expected = trained(*compiled(optimizer, parallel=False), x, y)
    mod, program = compiled(optimizer, parallel=True)
    lock = threading.Lock()

    def work(x: Any, y: Any) -> dict[str, Any]:
        with lock:
            own = relaxpy.VirtualMachine(program)
        return trained(mod, own, x, y)

    results = Team(workers).run(work, np.split(x, workers, 1), np.split(y, workers, 1))
    for found in results:
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
            np.testing.assert_array_equal(found[name], results[0][name], "not the same on all")


@pytest.mark.parametrize(
    ("optimizer", "before", "after"), [("SGD", 1, 2), ("Adam", 2, 4), ("Adam", 4, 1)]
)
def test_training_goes_on_with_other_workers(optimizer, before, after, tmp_path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, 8, 6)).astype("float32")
    y = rng.integers(0, 4, (8, 8))
    mod, program = compiled(optimizer, parallel=True)
    path, lock = tmp_path / "training.safetensors", threading.Lock()

    def work(x: Any, y: Any) -> dict[str, Any]:
        with lock:
            trainer = Trainer(mod, relaxpy.VirtualMachine(program))
        initial(trainer)
        steps = int(trainer.load_checkpoint(path)["steps"]) if path.exists() else 0
        until = 8 if steps else 5
        losses = [float(trainer.update(x[k], y[k])) for k in range(steps, until)]
        trainer.save_checkpoint(path, steps=until)
        assert path.exists()
        return {"losses": losses, **trainer.export_params(), **trainer.export_states()}

    def run(workers: int) -> dict[str, Any]:
        return Team(workers).run(work, np.split(x, workers, 1), np.split(y, workers, 1))[-1]

    first, second = run(before), run(after)
    expected = trained(*compiled(optimizer, parallel=False), x, y)
    second["losses"] = first["losses"] + second["losses"]
    for name, value in expected.items():
        np.testing.assert_allclose(second[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_all_workers_hear_that_a_checkpoint_is_not_written(tmp_path: Path) -> None:
    mod, program = compiled("SGD", parallel=True)

    def work(rank: int) -> str:
        trainer = Trainer(mod, program)
        initial(trainer)
        with pytest.raises((FileNotFoundError, RuntimeCheckError)) as caught:
            trainer.save_checkpoint(tmp_path / "missing" / "training.safetensors")
        return str(caught.value)

    first, second = Team(2).run(work, [0, 1])
    assert f"there is no folder: {str(tmp_path / 'missing')!r}" in first
    assert "worker 0 could not write the checkpoint" in second


def test_without_a_trainer_there_is_nothing_to_distribute() -> None:
    with pytest.raises(TransformError, match="SetupTrainer first"):
        DataParallel()(Model)
    once = prepared(SGD(0.1), parallel=True)
    relaxpy.ir.assert_structural_equal(DataParallel()(once), once)


def test_workers_begin_with_the_parameters_of_the_first() -> None:
    mod, program = compiled("SGD", parallel=True)
    lock = threading.Lock()
    x = np.random.default_rng(1).standard_normal((8, 6)).astype("float32")
    y = np.arange(8) % 4

    def work(seed: int) -> list[dict[str, Any]]:
        with lock:
            trainer = Trainer(mod, relaxpy.VirtualMachine(program))
        trainer.xavier_uniform_init_params(seed=seed)
        trainer.load_states({"steps": np.array(10 * seed)})
        trainer.update(x, y)
        first = {**trainer.export_params(), **trainer.export_states()}
        trainer.load_params({"b": np.full(4, seed, "float32")})
        trainer.update(x, y)
        return [first, {**trainer.export_params(), **trainer.export_states()}]

    one, *others = Team(3).run(work, [1, 2, 3])
    for seed, other in enumerate(others, 2):
        for step, (expected, found) in enumerate(zip(one, other, strict=True), 1):
            assert found.pop("steps") == 10 * seed + step
            for name, value in found.items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
