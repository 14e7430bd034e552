"""Random functions whose kernels stand between calls of packed functions do what their twins do."""

from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.fast_paths import OUTLINING, SHARED_MEMORY, WHOLE_GRAPH
from tests.exec.graph.agreement import agree
from tests.exec.graph.steps import StepError, Twin, write
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


def arguments(random: np.random.Generator, flags: tuple[bool, bool]) -> tuple[Any, ...]:
    """New arguments of `main`, some of which are views."""

    def array(*shape: int) -> Any:
        wide = random.standard_normal([2 * n for n in shape]).astype("float32")
        if random.random() < 0.3:
            return wide[tuple(slice(None, None, 2) for _ in shape)]
        return np.ascontiguousarray(wide[tuple(slice(n) for n in shape)])

    weights = array(3, 4), (array(4), "object")
    return array(3, 4), array(3), array(4), weights, "s", *map(np.array, flags)


def outcome(main: Callable[..., Any], twin: Twin, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The result or the failure, what the packed functions saw, and what is left in memory."""
    try:
        result: Any = main(*args)
    except StepError as error:
        result = f"{error.args}"
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


@pytest.mark.parametrize("k", range(COUNT))
def test_programs_do_what_their_twins_do(k: int, registered: dict[str, Twin]) -> None:
    random = Random(f"{SEED}.{k}")
    relax, python = write(random, symbolic=k % 2 == 0, aliases=k % 3 > 0)
    options = {"relax_pipeline": "legalize"} if k % 3 else {}
    names: dict[str, Any] = {"np": np}
    exec(python, names)  # what the generator wrote
    chosen = [*TARGETS] if k % 4 == 0 else ["native"]
    for target in chosen:
        kind, path = TARGETS[target]
        if path is None:
            program = relaxpy.compile(module(relax), kind, **options)
        else:
            with path.off():
                program = relaxpy.compile(module(relax), kind, **options)
        for fails_at in (-1, -1, random.randrange(4)):
            seed, flags = random.randrange(99), (random.random() < 0.5, random.random() < 0.5)
            twin, mine = Twin(fails_at), Twin(fails_at)
            twin.again = lambda c, t=twin: names["inner"](t, c)
            mine.again = program["inner"]
            registered["twin"] = mine
            args = arguments(np.random.default_rng(seed), flags)
            found = outcome(program["main"], mine, args)
            args = arguments(np.random.default_rng(seed), flags)
            expected = outcome(lambda *args, t=twin: names["main"](t, *args), twin, args)
            try:
                agree(found, expected)
            except AssertionError as error:
                error.add_note(f"{target} {options} seed {SEED}.{k}\n{relax}\n{python}")
                raise
