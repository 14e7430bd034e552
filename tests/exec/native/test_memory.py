"""Memory that native code uses again: what tensors hold, when it is free, and how much is kept."""

import gc
import itertools
import os
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy import compile
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.native.calls.entry import empty_builtin
from relaxpy.exec.native.threads.freed_memory import memory
from tests.ir.relax.texts import module

MIB = 1 << 20
FLOAT = np.dtype(np.float32)


def chain(size: str) -> Executable:
    """A function whose tensors beside its result need twice the memory of its argument."""
    mod = module(f"""
    def main(x: f32[{size}]):
        a = R.cumsum(x, axis=0)
        b = R.flip(a, axis=0)
        c = R.cumsum(b, axis=0)
        return R.subtract(R.flip(c, axis=0), a)
    """)
    return compile(mod, target="native")


def expected(x: np.ndarray) -> np.ndarray:
    a = np.cumsum(x)
    return np.cumsum(a[::-1])[::-1] - a


@pytest.mark.parametrize("size", ["'n'", "3000000"])
def test_pages_are_used_again(size: str) -> None:
    ex, x = chain(size), np.zeros(3_000_000, np.float32)
    for _ in range(4):
        ex["main"](x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        ex["main"](x)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults * resource.getpagesize() < x.nbytes


def test_results_keep_their_values() -> None:
    ex, rng = chain("'n'"), np.random.default_rng(0)
    kept = []
    for size in rng.integers(1, 300_000, 40):
        x = rng.integers(-3, 4, size).astype(np.float32)
        y = ex["main"](x)
        assert y.flags.owndata
        assert y.flags.writeable
        kept.append((x, y))
        if size % 3 == 0:
            kept.pop(0)
    for x, y in kept:
        np.testing.assert_array_equal(y, expected(x))


def test_memory_is_freed_with_the_program() -> None:
    ex = chain("'n'")
    y = ex["main"](np.ones(2_000_000, np.float32))
    copy = y.copy()
    assert memory().held() > 0
    del ex
    gc.collect()
    assert memory().held() == 0
    np.testing.assert_array_equal(y, copy)


@given(st.lists(st.tuples(st.integers(1 << 14, 4_000_000), st.integers(0, 7)), max_size=60))
def test_no_two_tensors_share_memory(requests: list[tuple[int, int]]) -> None:
    memory().trim()
    empty = empty_builtin()
    alive: list[np.ndarray] = []
    used = most = 0
    for number, (size, drop) in enumerate(requests):
        array = empty((size,), FLOAT)
        assert isinstance(array, np.ndarray)
        array[[0, size // 2, -1]] = number
        alive.append(array)
        used += array.nbytes
        most = max(most, used)
        if drop < len(alive):
            dropped = alive.pop(drop)
            assert len({*dropped[[0, len(dropped) // 2, -1]]}) == 1
            used -= dropped.nbytes
            del dropped
        del array
    bounds = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in alive)
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(bounds))
    assert all(a.ctypes.data % 64 == 0 for a in alive)


def test_what_is_kept_has_a_bound() -> None:
    """Sizes that never fit do not add up."""
    memory().trim()
    empty = empty_builtin()
    for size in range(MIB, 40 * MIB, MIB // 4):
        empty((size // 4,), FLOAT)
    assert 0 < memory().held() <= 5 / 4 * 45 * MIB + 16 * MIB


def test_what_nobody_asks_for_is_freed() -> None:
    memory().trim()
    empty = empty_builtin()
    empty((32 * MIB,), FLOAT)
    before = memory().held()
    assert before >= 128 * MIB
    for _ in range(1100):
        empty((100_000,), FLOAT)
    assert memory().held() < MIB


def test_arrays_are_resized() -> None:
    array = empty_builtin()((100_000,), FLOAT)
    assert isinstance(array, np.ndarray)
    array[:] = np.arange(100_000)
    for size in (400_000, 50, 200_000):
        array.resize((size,), refcheck=False)
        count = 50 if size == 200_000 else min(size, 100_000)
        np.testing.assert_array_equal(array[:count], np.arange(count))
        assert not array[count:].any()


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("shape", [(2**62, 2**62), (2**40, 2**10), (-1, 3), (2**70,)])
def test_impossible_tensors(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeCheckError, match="cannot allocate"):
        empty_builtin()(shape, FLOAT)


def test_threads_take_and_give() -> None:
    empty, wrong, shared = empty_builtin(), [], [None] * 8

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(400):
            size = int(rng.integers(30_000, 500_000))
            array = empty((size,), FLOAT)
            assert isinstance(array, np.ndarray)
            array[:] = number
            # Another thread frees it.
            shared[int(rng.integers(8))] = array  # type: ignore[call-overload]
            if not (array == number).all():
                wrong.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))  # raises what a thread does
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_has_memory_of_its_own() -> None:
    ex = chain("'n'")
    x = np.ones(1_000_000, np.float32)
    y = ex["main"](x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(ex["main"](x), y) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(ex["main"](x), y)


def test_short_lived_memory_may_be_in_a_block_that_is_several_times_as_large() -> None:
    ex = chain("'n'")
    memory().trim()
    results = [ex["main"](np.ones(1_500_000, np.float32))]
    held = memory().held()
    results.append(ex["main"](np.ones(200_000, np.float32)))
    assert memory().held() == held > 8 * MIB  # the second call needs 1.6 MB
