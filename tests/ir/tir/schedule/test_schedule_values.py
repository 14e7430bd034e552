"""Whatever primitives are applied to a kernel, its values stay."""

import random

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from tests.fuzz.primitives import STEPS, schedule_at_random
from tests.fuzz.scheduled_kernels import KERNELS, arguments
from tests.fuzz.seed import COUNT, SEED


@pytest.mark.parametrize("name", KERNELS)
def test_values_stay_equal_after_random_primitives(name: str) -> None:
    func, shapes = KERNELS[name]
    expected = arguments(shapes)
    relaxpy.compile(func, target="reference")[func.__name__](*expected)
    for number in range(max(2, COUNT // 6)):
        rng = random.Random(f"{SEED} {name} {number}")
        sch, applied = schedule_at_random(func, rng, 16)
        target = ("reference", "numpy", "native")[number % 3]
        results = arguments(shapes)
        relaxpy.compile(sch.mod, target=target)["main"](*results)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(
                result, wanted, f"{SEED} {number}: {applied}\n{sch.trace}"
            )


def test_each_primitive_is_drawn_somewhere() -> None:
    drawn: set[str] = set()
    for seed in range(400):
        name = random.Random(seed).choice(list(KERNELS))
        drawn.update(schedule_at_random(KERNELS[name][0], random.Random(seed), 16)[1])
        if drawn == set(STEPS):
            return
    pytest.fail(f"never applied: {set(STEPS) - drawn}")


def test_a_trace_leads_to_the_same_kernel() -> None:
    func, _ = KERNELS["matmul_relu"]
    for seed in range(3):
        sch, applied = schedule_at_random(func, random.Random(seed), 12)
        assert applied
        second, third = tir.Schedule(func), tir.Schedule(func)
        sch.trace.apply_to_schedule(second)
        tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), third)
        relaxpy.ir.assert_structural_equal(second.mod, sch.mod)
        relaxpy.ir.assert_structural_equal(third.mod, sch.mod)
