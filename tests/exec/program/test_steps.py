"""Random functions whose kernels stand between calls of packed functions do what their twins do."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import OUTLINING, SHARED_MEMORY, WHOLE_GRAPH
from tests.exec.program.agreement import agree
from tests.exec.program.steps import FailedError, StepError, Twin, write
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import module

NAMES = ("same", "reverse", "pair", "keep", "change", "write", "call_again")
PURE = ("same", "reverse", "pair", "write")
TARGETS = {
    "native": ("native", None),
    "native without outlining": ("native", OUTLINING),
    "native without whole graphs": ("native", WHOLE_GRAPH),
    "native without shared memory": ("native", SHARED_MEMORY),
    "numpy": ("numpy", None),
    "reference": ("reference", None),
}


@pytest.fixture(autouse=True)
def registered() -> dict[str, Twin]:
    """The object whose methods the packed functions are now."""
    current: dict[str, Twin] = {}

    def method(name: str) -> Callable[..., Any]:
        return lambda *args: getattr(current["twin"], name)(*args)

    for name in NAMES:
        relaxpy.register_func(f"test.steps.{name}", method(name), override=True, pure=name in PURE)
    return current


def arguments(random: np.random.Generator) -> tuple[Any, ...]:
    """New arguments of `main`, some of which are views."""

    def array(*shape: int) -> Any:
        wide = random.standard_normal([2 * n for n in shape]).astype("float32")
        if random.random() < 0.3:
            return wide[tuple(slice(None, None, 2) for _ in shape)]
        return np.ascontiguousarray(wide[tuple(slice(n) for n in shape)])

    weights = array(3, 4), (array(4), "object")
    flags = random.random(2) < 0.5
    bad = [random.random() < 0.15 for _ in range(6)]
    at = np.where(bad[:4], random.choice([1, -1, 8], 4), 0)
    z, g = np.array([3 + bad[4], 4]), array(3 + bad[4])
    others = at, z, array(random.choice([1, 5]) if bad[5] else 4), g
    return array(3, 4), array(3), array(4), weights, "s", *map(np.array, flags), *others


def outcome(main: Callable[..., Any], twin: Twin, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The result or the failure, what the packed functions saw, and what is left in memory."""
    try:
        result: Any = main(*args)
    except StepError as error:
        result = f"{error.args}"
    except FailedError:
        result = "an error"
    except RelaxpyError as error:
        result = "an error"
        twin.messages.append(str(error))
    whole = result, tuple(twin.kept), args
    arrays = [*leaves(whole)]
    shared = tuple(np.shares_memory(a, b) for a, b in combinations(arrays, 2))
    same = tuple(a is b for a, b in combinations(arrays, 2))
    return whole, tuple(twin.log), shared, same


def leaves(value: Any) -> Iterator[Any]:
    """The arrays in nested tuples."""
    if isinstance(value, tuple):
        for field in value:
            yield from leaves(field)
    elif isinstance(value, np.ndarray):
        yield value


def references(main: Callable[..., Any], twin: Callable[[], Twin], args: tuple[Any, ...]) -> None:
    """Fail if calls change the numbers of references to the arguments."""

    def counted() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (*args, *args[3], *args[3][1])]

    before = counted()
    for _ in range(3):
        outcome(main, twin(), args)
    twin()  # instead of the last one, which keeps some of them
    assert counted() == before


@pytest.mark.parametrize("k", range(COUNT))
def test_programs_do_what_their_twins_do(k: int, registered: dict[str, Twin]) -> None:
    random = Random(f"{SEED}.{k}")
    relax, python = write(random, symbolic=k % 2 == 0, aliases=k % 3 > 0)
    options = {"relax_pipeline": "legalize"} if k % 3 else {}
    names: dict[str, Any] = {"np": np}
    exec(python, names)  # what the generator wrote
    calls = [(random.randrange(99), fails_at) for fails_at in (-1, -1, random.randrange(4))]
    messages: dict[tuple[int, int], list[str]] = {}
    for target in TARGETS if k % 4 == 0 else ("native", "numpy"):
        kind, path = TARGETS[target]
        with path.off() if path is not None else nullcontext():
            program = relaxpy.compile(module(relax), kind, **options)

        def mine(fails_at: int, inner: Any = program["inner"]) -> Twin:
            registered["twin"] = twin = Twin(fails_at)
            twin.again = inner
            return twin

        for seed, fails_at in calls:
            args = arguments(np.random.default_rng(seed))
            run, twin = mine(fails_at), Twin(fails_at)
            found = outcome(program["main"], run, args)
            args = arguments(np.random.default_rng(seed))
            twin.again = lambda c, t=twin: names["inner"](t, c)
            expected = outcome(lambda *args, t=twin: names["main"](t, *args), twin, args)
            try:
                agree(found, expected)
                if kind != "reference":  # its errors do not say who called
                    assert run.messages == messages.setdefault((seed, fails_at), run.messages)
                if target == "native" and k % 4 == 0:
                    references(program["main"], partial(mine, fails_at), args)
            except AssertionError as error:
                error.add_note(f"{target} {options} seed {SEED}.{k}\n{relax}\n{python}")
                raise
