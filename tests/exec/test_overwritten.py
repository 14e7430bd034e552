"""Equal values of which one is overwritten stay two, whatever passes and targets do to them."""

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RelaxpyWarning
from relaxpy.exec.api.compile import compile
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.module import IRModule
from relaxpy.relax.transform import BindParams, ConvertToDataflow, LiftTransformParams
from tests.exec.passes import PASSES
from tests.fuzz import overwritten
from tests.fuzz.seed import COUNT, SEED

AT_ONCE = 10
Outcome = tuple[list[object], list[int]]
batches = pytest.mark.parametrize("batch", range(-(-COUNT // AT_ONCE)))


def increase(x: np.ndarray) -> np.ndarray:
    x += 2
    return x


PACKED = {"negate": np.negative, "increase": increase, "see": lambda x: None}


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    for name, func in PACKED.items():
        register_func(f"test.overwritten.{name}", func)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxpyWarning)
        yield
    for name in PACKED:
        remove_global_func(f"test.overwritten.{name}")


def seeds(batch: int) -> list[str]:
    return [f"{SEED}.{k}" for k in range(AT_ONCE * batch, min(AT_ONCE * (batch + 1), COUNT))]


def outcome(mod: IRModule, target: str, pipeline: str | None, args: Any) -> Outcome:
    """What two calls return, and which of these tensors share memory."""
    main = compile(mod, target, relax_pipeline=pipeline)["main"]
    tensors = [*main(*args()), *main(*args())]
    first = [next(i for i, b in enumerate(tensors) if np.shares_memory(a, b)) for a in tensors]
    return [t.tolist() for t in tensors], first


@pytest.mark.rule("OPT-11", "EV-2")
@batches
def test_passes_and_targets_keep_equal_values_apart(batch: int) -> None:
    for seed in seeds(batch):
        mod = overwritten.write(seed)

        def run(mod: IRModule, target: str, pipeline: str | None, seed: str = seed) -> Outcome:
            return outcome(mod, target, pipeline, lambda: overwritten.arguments(seed))

        expected = run(mod, "reference", None)
        name = random.Random(seed).choice(sorted(PASSES))
        assert run(PASSES[name](mod), "reference", None) == expected, (seed, name)
        assert run(mod, "numpy", "default") == expected, seed
        assert run(mod, "native", "default") == expected, seed


@pytest.mark.rule("OPT-11")
@batches
def test_what_is_computed_once_from_weights_is_not_overwritten(batch: int) -> None:
    for seed in seeds(batch):
        mod = overwritten.write(seed, kept="y")
        expected, _ = outcome(mod, "reference", None, lambda s=seed: overwritten.arguments(s))
        mod["main"] = mod["main"].with_attr("num_input", 2)
        lifted = compile(LiftTransformParams()(ConvertToDataflow(min_size=1)(mod)))
        *_, y = overwritten.arguments(seed)
        weights = lifted["main_transform_params"]((y,))
        calls = (lifted["main"](*overwritten.arguments(seed)[:2], *weights) for _ in range(2))
        assert [t.tolist() for results in calls for t in results] == expected, seed


@pytest.mark.rule("OPT-11")
@batches
def test_literals_are_not_overwritten(batch: int) -> None:
    for seed in seeds(batch):
        *_, y = overwritten.arguments(seed)
        mod = BindParams("main", {"y": y})(overwritten.write(seed))

        def run(target: str, pipeline: str | None, mod: IRModule = mod, seed: str = seed) -> object:
            return outcome(mod, target, pipeline, lambda: overwritten.arguments(seed)[:2])[0]

        expected = run("reference", None)
        assert run("numpy", "default") == expected, seed
        assert run("native", "default") == expected, seed


def test_programs_are_the_same_for_one_seed() -> None:
    assert overwritten.text("a") == overwritten.text("a") != overwritten.text("b")
