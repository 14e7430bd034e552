"""Caches of pages that are copied, changed or interrupted while native functions use them.

The same calls by the text, on a cache of its own, say what is right. Run in a process whose
allocator overwrites what is freed, these tests show what machine code reads after that, too.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import PACKED_CALLS
from relaxpy.plugins.nn.caches.pages import PagedKVCache
from tests.fuzz.seed import SEED
from tests.plugins.nn.language import WORDS, Decoding, exported, new_cache, state

pytest.importorskip("llvmlite")

KINDS = ["mha", "mha_sliding", "mha"]


@cache
def programs() -> tuple[Any, Any, Any]:
    """A model as a native function and by the text, and its parameters."""
    mod, params = exported(KINDS)
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    return relaxpy.compile(mod, "native"), text, params


class Copying(Decoding):
    """Random calls of caches, some of which are copied at any time; the first one never is."""

    times = 2

    @override
    def pause(self) -> None:
        if self.rng.random() < 0.3:
            program, original = self.rng.choice(self.runs[1:])
            made = program, copy.deepcopy(original)
            if len(self.runs) < 4:
                self.runs.append(made)
            else:
                self.runs[self.rng.randrange(1, 4)] = made

    @override
    def step(self) -> list[Any]:
        self.pause()
        return super().step()


@pytest.mark.parametrize("sliding", [0, 1])
def test_copies_decode_as_what_was_never_copied(sliding: int) -> None:
    native, text, params = programs()
    decoding = Copying([text, native, text], params, random.Random(f"{SEED} {sliding}"), sliding)
    for _ in range(150):
        first, *others = decoding.step() or [None]
        for other in others:
            np.testing.assert_array_equal(first, other)


def begun(program: Any, copied: Callable[[Any], Any] = lambda x: x) -> Any:
    """A cache in a call of three tokens, where a sequence is in several runs of slots."""
    made = new_cache(program)
    state("add_sequence", made, 0)
    for count in (6, 1):
        state("begin_forward", made, [0], [count])
        program["forward"](np.arange(count, dtype=np.int32)[None], made, programs()[2])
        state("end_forward", made)
    state("fork_sequence", made, 0, 1, 5)
    state("begin_forward", made, [0, 1], [1, 2])
    return copied(made)


IDS = np.array([[4, 5, 6]], np.int32)


def forward(program: Any, made: Any) -> bytes:
    found: bytes = program["forward"](IDS, made, programs()[2]).tobytes()
    return found


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_and_its_original_take_turns_in_a_call(copied: Callable[[Any], Any]) -> None:
    found = []
    for program in programs()[:2]:
        original = begun(program)
        results = [forward(program, original)]
        other = copied(original)
        results += [forward(program, each) for each in (other, original, other)]
        for each in (original, other):
            state("clear", each)
            state("add_sequence", each, 5)
            state("begin_forward", each, [5], [3])
            results.append(forward(program, each))
        found.append(results)
    assert found[0] == found[1]


def test_a_cache_without_kernels_is_pickled_in_a_call() -> None:
    made = PagedKVCache((2, 64, 16, 4, 0, 0), [0], (2, 1), (4, 4), np.dtype("float32"), (None, 0))
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((3, 4, 4)).astype("float32")
    state("add_sequence", made, 0)
    state("begin_forward", made, [0], [3])
    results = []
    for each in (made, pickle.loads(pickle.dumps(made)), made):
        out = np.empty((3, 2, 4), np.float32)
        each.fused(0, 0.5, qkv, out)
        results.append(out.tobytes())
        qkv = qkv.copy()
    assert len({*results}) == 1


PACKAGE = str(Path(relaxpy.__file__).parent)


class Stopped(BaseException):
    """Ends a call."""


def stop(_: Any) -> None:
    raise Stopped


def again(made: Any) -> None:
    state("clear", made)
    state("add_sequence", made, 3)
    state("begin_forward", made, [3], [3])


def remove(made: Any) -> None:
    with pytest.raises(RelaxpyError, match="has begun"):
        state("remove_sequence", made, 0)


EVENTS: dict[str, Callable[[Any], object]] = {
    "nothing": lambda made: None,
    "clear": partial(state, "clear"),
    "end": partial(state, "end_forward"),
    "begin again": again,
    "remove": remove,
    "copy": copy.deepcopy,
    "stop": stop,
    "interrupt": lambda made: signal.raise_signal(signal.SIGINT),
    "forward": lambda made: [forward(p, begun(p)) for p in programs()[:2]],
    "garbage": lambda made: gc.collect(),
}


def outcome(program: Any, event: Callable[[Any], object], count: int) -> Any:
    """The result of a call or its error, and that of the next one, if an event happens in it.

    It happens in the given one of the calls of Python by layers.
    """
    made = begun(program)
    attend = PagedKVCache._attend
    left = iter(range(count))

    def attended(self: Any, *args: Any) -> None:
        if self is made and next(left, None) is None:
            PagedKVCache._attend = attend  # type: ignore[method-assign]
            event(made)
        attend(self, *args)

    PagedKVCache._attend = attended  # type: ignore[method-assign]
    try:
        first: Any = forward(program, made)
    except (RelaxpyError, Stopped, KeyboardInterrupt) as error:
        first = type(error), str(error).partition("\n")[0].partition(" ")[2]
    finally:
        PagedKVCache._attend = attend  # type: ignore[method-assign]
    state("clear", made)
    state("add_sequence", made, 7)
    state("begin_forward", made, [7], [3])
    return first, forward(program, made), next(left, None) is None


@pytest.mark.parametrize("name", EVENTS)
def test_what_happens_in_a_call_is_as_in_the_text(name: str) -> None:
    for count in range(100):
        native, text = (outcome(program, EVENTS[name], count) for program in programs()[:2])
        if name != "begin again":  # whose layers belong to one call natively, to two in the text
            assert native == text
        assert native[1:] == text[1:]
        if not native[2]:
            break
    assert count >= len(KINDS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, Stopped])
def test_no_exception_of_a_profiler_is_lost(error: type[BaseException]) -> None:
    native, _, params = programs()
    made = begun(native)
    expected = forward(native, made)
    for count in range(1000):
        raised: list[str] = []
        left = iter(range(count))

        def note(
            frame: Any, event: str, arg: Any, left: Iterator[int] = left, raised: list[str] = raised
        ) -> None:
            if PACKAGE in frame.f_code.co_filename and next(left, None) is None:
                sys.setprofile(None)
                raised.append(event)
                raise error("of a profiler")

        found: Any = None
        try:
            sys.setprofile(note)
            found = native["forward"](IDS, made, params).tobytes()
        except error:
            assert raised
        finally:
            sys.setprofile(None)
        assert found == (None if raised else expected)
        assert forward(native, made) == expected
        if not raised:
            break
    assert count > 50


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_no_exception_of_a_handler_is_lost() -> None:
    native = programs()[0]
    made = begun(native)
    expected = forward(native, made)
    rng = random.Random(SEED)
    raised = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal raised
        raised += 1
        raise TimeoutError("of a handler")

    before = signal.signal(signal.SIGALRM, handle)
    caught = 0
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                while True:
                    assert forward(native, made) == expected
            except TimeoutError:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught == raised == 300


def test_threads_change_a_cache_that_others_use() -> None:
    """Layers of several calls are then mixed, but only errors of relaxpy are raised."""
    native, _, params = programs()
    made = new_cache(native)
    unexpected: list[str] = []
    counts = {"results": 0, "errors": 0}
    lock = threading.Lock()
    stop_at = time.monotonic() + 4

    def change(rng: random.Random) -> None:
        number = rng.randrange(4)
        acts: list[Callable[[], object]] = [
            partial(state, "clear", made),
            partial(state, "add_sequence", made, number),
            partial(state, "fork_sequence", made, number, (number + 1) % 4, -1),
            partial(state, "popn", made, number, 1),
            partial(state, "begin_forward", made, [number], [rng.choice([1, 1, 3])]),
            partial(state, "end_forward", made),
            partial(copy.deepcopy, made),
        ]
        with lock:
            rng.choice(acts)()

    def use(seed: str) -> None:
        rng = random.Random(seed)
        while time.monotonic() < stop_at:
            ids = np.full((1, rng.choice([1, 1, 3])), rng.randrange(WORDS), np.int32)
            try:
                if rng.random() < 0.5:
                    native["forward"](ids, made, params)
                    counts["results"] += 1
                else:
                    change(rng)
            except RelaxpyError:
                counts["errors"] += 1
            except BaseException:
                unexpected.append(traceback.format_exc())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=use, args=(f"{SEED} {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert unexpected == []
    assert min(counts.values()) > 20
