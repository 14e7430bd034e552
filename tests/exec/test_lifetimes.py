"""Memory that tensors share is not written while an earlier tensor in it is still read."""

from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import SHARED_MEMORY
from relaxpy.exec.program.graph import emit_region
from relaxpy.exec.program.graph.emit_region import MemoryPlan, byte_count
from relaxpy.exec.program.graph.program import Region, Tensor
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.support.dataclass import replace
from tests.exec.program.steps import Twin, write
from tests.exec.program.test_steps import NAMES, PURE, arguments, leaves
from tests.fuzz import overwritten
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import module

Place = tuple[str, int, int]


def replay(region: Region, plan: MemoryPlan) -> int:
    """The number of the steps of a region, each of which found what earlier steps had written.

    Errors:
        AssertionError: a step reads or writes where another tensor is.
    """
    tensors = {tensor.memory: tensor for tensor in region.new_tensors()}
    held: dict[Memory, Place] = {}
    for step in region.steps:
        outputs = {tensor.memory for tensor in step.outputs}
        used = {tensor.memory for tensor in step.reads()} & tensors.keys()
        assert used - outputs <= held.keys(), step
        places = [place_of(tensors[memory], plan) for memory in used | outputs]
        assert not any(overlap(a, b) for a, b in combinations(places, 2)), step
        for memory in outputs:
            place = place_of(tensors[memory], plan)
            held = {m: p for m, p in held.items() if not overlap(p, place)}
            held[memory] = place
    assert {t.memory for t in region.results} & tensors.keys() <= held.keys()
    return len(region.steps)


def place_of(tensor: Tensor, plan: MemoryPlan) -> Place:
    """Where a plan has a tensor: a kind of memory, and a range of it."""
    memory, size = tensor.memory, byte_count(tensor)
    if memory in plan.direct:
        return "result", plan.direct[memory], plan.direct[memory] + 1
    if memory in plan.offsets:
        assert size.constant is not None
        start = plan.offsets[memory]
        assert start + size.constant <= plan.fixed
        return "workspace", start, start + size.constant
    slot = plan.slots[memory]
    assert any(size.same(other) for other in plan.slot_sizes[slot])
    return "slot", slot, slot + 1


def overlap(a: Place, b: Place) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Region, MemoryPlan]]:
    """The plans that have been made."""
    found: list[tuple[Region, MemoryPlan]] = []
    make = emit_region.plan_memory

    def noted(region: Region) -> MemoryPlan:
        found.append((region, make(region)))
        return found[-1][1]

    monkeypatch.setattr(emit_region, "plan_memory", noted)
    return found


class Calls:
    """The packed functions of the programs, and what they saw."""

    def __init__(self) -> None:
        self.twin = Twin()

    def increase(self, x: Any) -> Any:
        x += 2
        return x


@pytest.fixture(autouse=True)
def packed() -> Iterator[Calls]:
    calls = Calls()
    functions: dict[str, Callable[..., Any]] = {
        "test.overwritten.negate": np.negative,
        "test.overwritten.increase": calls.increase,
        "test.overwritten.see": lambda x: None,
    }
    for name, func in functions.items():
        register_func(name, func)
    for name in NAMES:
        func = lambda *args, name=name: getattr(calls.twin, name)(*args)  # noqa: E731
        register_func(f"test.steps.{name}", func, override=True, pure=name in PURE)
    yield calls
    for name in functions:
        remove_global_func(name)


def bits(
    mod: IRModule, target: str, pipeline: str, calls: Calls, make: Callable[[], Any]
) -> tuple[object, ...]:
    """The bytes of all arrays after a call of `main` or its error, and which are in one memory."""
    program = relaxpy.compile(mod, target, relax_pipeline=pipeline)
    calls.twin, args = Twin(), make()
    calls.twin.again = program["inner"] if "inner" in mod else None
    try:
        result: Any = program["main"](*args)
        first = [array.copy() for array in leaves(result)]
        again: Any = program["main"](*make())
    except RelaxpyError as error:
        result, first, again = (), [np.frombuffer(type(error).__name__.encode(), "u1")], ()
    arrays = [*leaves((result, again, tuple(args), *calls.twin.kept))]
    shared = tuple(np.shares_memory(a, b) for a, b in combinations(arrays, 2))
    seen = [np.array(x).tobytes() for _, *each in calls.twin.log for x in each]
    return [a.tobytes() for a in (*first, *arrays)], seen, shared


@pytest.mark.rule("OPT-10", "OPT-11")
@pytest.mark.parametrize("k", range(COUNT))
def test_shared_memory_changes_no_bit(
    k: int, packed: Calls, plans: list[tuple[Region, MemoryPlan]]
) -> None:
    seed = f"{SEED}.{k}"
    relax, _ = write(Random(seed), symbolic=k % 2 == 0, aliases=k % 3 > 0)
    programs: list[tuple[str, Callable[[], Any]]] = [
        (relax, lambda: arguments(np.random.default_rng(k))),
        *((overwritten.text(s), lambda s=s: overwritten.arguments(s)) for s in (seed, seed + "+")),
    ]
    for number, (text, make) in enumerate(programs):
        pipeline = ("default", "legalize")[(k + number) % 2]
        for target in ("numpy", "native"):
            found = bits(module(text), target, pipeline, packed, make)
            with SHARED_MEMORY.off():
                expected = bits(module(text), target, pipeline, packed, make)
            assert found == expected, f"{target} {pipeline} seed {seed}\n{text}"
    for plan in plans:
        replay(*plan)


@pytest.mark.rule("OPT-10")
@pytest.mark.parametrize("size", ["64", "n"])
def test_the_replay_refuses_tensors_in_one_place(
    size: str, plans: list[tuple[Region, MemoryPlan]]
) -> None:
    body = "a = R.exp(x)\nb = R.matmul(a, x)\nc = R.matmul(b, a)\nd = R.matmul(c, b)\nreturn d"
    lines = "\n    ".join(body.splitlines())
    relaxpy.compile(module(f"def main(x: f32[{size}, {size}]):\n    {lines}"), "native")
    region, plan = max(plans, key=lambda each: len(each[0].steps))
    assert replay(region, plan) >= 4
    first = dict.fromkeys(plan.offsets, 0), dict.fromkeys(plan.slots, 0)
    with pytest.raises(AssertionError, match="matmul"):
        replay(region, replace(plan, offsets=first[0], slots=first[1]))
