"""Caches of pages in native functions: attention runs without Python, with the same results."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.fast_paths import PACKED_CALLS
from relaxpy.exec.graph.sessions import Session
from relaxpy.exec.runtime.registry import provided, remove_global_func
from relaxpy.plugins.nn.caches.pages import PagedKVCache as Pages
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode
from relaxpy.script import from_source
from tests.fuzz.seed import SEED

pytest.importorskip("llvmlite")

HEADS, KV_HEADS, D, WIDTH, WORDS = 4, 2, 8, 16, 30


class Layer(nn.Module):
    def __init__(self, number: int, dtype: str, *, has_sinks: bool) -> None:
        self.number, self.dtype = number, dtype
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * D, bias=False)
        self.out = nn.Linear(HEADS * D, WIDTH, bias=False)
        self.sinks = nn.Parameter((HEADS,), dtype) if has_sinks else None

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        b, s, _ = x.shape
        qkv = self.qkv(x).reshape(b, s, HEADS + 2 * KV_HEADS, D).astype(self.dtype)
        found = cache.attention_with_fused_qkv(self.number, qkv, HEADS, D**-0.5, self.sinks)
        return x + self.out(found.reshape(b, s, HEADS * D).astype("float32"))


class Language(nn.Module):
    def __init__(self, kinds: list[str], dtype: str, *, has_sinks: bool = False) -> None:
        self.kinds, self.dtype = kinds, dtype
        self.words = nn.Embedding(WORDS, WIDTH)
        layers = (Layer(k, dtype, has_sinks=has_sinks) for k in range(len(kinds)))
        self.layers = nn.ModuleList([*layers])

    def forward(self, ids: nn.Tensor, cache: PagedKVCache) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return x

    def create(self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any) -> Any:
        return PagedKVCache.create_generic(
            self.kinds,
            *(sequences, tokens, chunk, page, sliding, len(self.kinds), HEADS, KV_HEADS, D, D),
            *(RopeMode.NORMAL, 1, 100, self.dtype),
            layer_sliding_window_size=7,
        )


def exported(kinds: list[str], dtype: str = "float32", *, has_sinks: bool = False) -> Any:
    """A module, and random weights."""
    plain = {"param_mode": "packed", "effect_mode": "none"}
    names = ("sequences", "tokens", "chunk", "page", "sliding")
    mod, params = Language(kinds, dtype, has_sinks=has_sinks).export_tvm(
        {
            "forward": {
                "ids": spec.Tensor([1, "n"], "int32"),
                "cache": spec.Object(object_type=PagedKVCache),
                "$": plain,
            },
            "create": {**dict.fromkeys(names, int), "$": plain | {"param_mode": "none"}},
        }
    )
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(tuple(p.shape)).astype(p.dtype) / 3 for _, p in params)
    return mod, tuple(values)


def state(name: str, *args: Any) -> Any:
    return relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")(*args)


def new_cache(
    program: Any, sequences: int = 6, tokens: int = 600, page: int = 4, sliding: int = 0
) -> Any:
    limits = (sequences, tokens, 64, page, sliding)
    return program["create"](*(relaxpy.runtime.ShapeTuple([n]) for n in limits))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the layers of each call were run without Python."""
    found: list[bool] = []
    known = Session.opened

    def open_one(session: Session, args: Any) -> Any:
        result = known(session, args)
        if result is not None:
            found.append(int(result[0][0]) == 0)
        return result

    monkeypatch.setattr(Session, "opened", open_one)
    return found


class Decoding:
    """The same random calls of several programs of a model, each with a cache."""

    def __init__(self, programs: list[Any], params: Any, rng: random.Random, sliding: int) -> None:
        self.rng, self.params, self.sliding = rng, params, sliding
        page = rng.choice([1, 4, 16])
        self.runs = [
            (program, new_cache(program, page=page, sliding=sliding)) for program in programs
        ]
        self.lengths: dict[int, int] = {}
        self.windows: set[int] = set()

    def state(self, name: str, *args: Any) -> None:
        for _, cache in self.runs:
            state(name, cache, *args)

    def step(self) -> list[Any]:
        """The results of a random step, of each program."""
        rng, known = self.rng, list(self.lengths)
        free = [n for n in range(6) if n not in self.lengths]
        match rng.choice(["add", "fork", "remove", "pop", "window", *["call"] * 12]):
            case "add" if free:
                self.state("add_sequence", free[0])
                self.lengths[free[0]] = 0
            case "fork" if free and known:
                parent = rng.choice(known)
                is_whole = parent in self.windows
                count = self.lengths[parent] if is_whole else rng.randint(0, self.lengths[parent])
                self.state("fork_sequence", parent, free[0], -1 if is_whole else count)
                self.lengths[free[0]] = count
                self.windows |= {free[0]} & ({free[0]} if is_whole else set())
            case "remove" if len(known) > 2:
                gone = rng.choice(known)
                self.state("remove_sequence", gone)
                del self.lengths[gone]
                self.windows.discard(gone)
            case "pop" if known:
                own = rng.choice(known)
                if own not in self.windows:
                    count = rng.randint(0, min(3, self.lengths[own]))
                    self.state("popn", own, count)
                    self.lengths[own] -= count
            case "window" if known and self.sliding:
                own = rng.choice(known)
                name = "attention_kv_cache_enable_sliding_window_for_seq"
                for _, cache in self.runs:
                    relaxpy.get_global_func(f"vm.builtin.{name}")(cache, own, 9, 2)
                self.windows.add(own)
            case _ if known:
                return self.call(rng.sample(known, rng.randint(1, len(known))))
        return []

    def call(self, ids: list[int]) -> list[Any]:
        """Append tokens to sequences: mostly one to each."""
        counts = [self.rng.choice([1, 1, 1, 5]) for _ in ids]
        if sum(self.lengths.values()) + sum(counts) > 500:
            for own in list(self.lengths)[1:]:
                self.state("remove_sequence", own)
                del self.lengths[own]
                self.windows.discard(own)
            return []
        tokens = [self.rng.randrange(WORDS) for _ in range(sum(counts))]
        results = []
        self.state("begin_forward", ids, counts)
        for program, cache in self.runs:
            flat = np.array([tokens], np.int32)
            results.append(program["forward"](flat, cache, self.params))
        self.state("end_forward")
        for own, count in zip(ids, counts, strict=True):
            self.lengths[own] += count
        return results


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kinds", [["mha"] * 3, ["mha_sliding", "mha", "mha_sliding"]])
def test_random_steps_are_those_in_python(kinds: list[str], dtype: str, opened: list[bool]) -> None:
    mod, params = exported(kinds, dtype)
    native, plain = relaxpy.compile(mod, "native"), relaxpy.compile(mod, "numpy")
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    tolerance = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    for sliding in (0, 1):
        rng = random.Random(f"{SEED} {kinds} {dtype} {sliding}")
        decoding = Decoding([native, text, plain], params, rng, sliding)
        before = len(opened)
        calls = 0
        for _ in range(200):
            if results := decoding.step():
                first, second, third = results
                np.testing.assert_array_equal(first, second)
                np.testing.assert_allclose(first, third, rtol=tolerance, atol=tolerance)
                calls += 1
        assert len(opened) - before == calls > 50
    assert {*opened} == {True, False}  # some sequences are in several runs of slots


def python_calls(run: Callable[[], object]) -> int:
    """The functions in Python that a call enters."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_a_token_enters_python_as_often_whatever_the_layers() -> None:
    counts = []
    for layers in (2, 5):
        mod, params = exported(["mha"] * layers)
        program = relaxpy.compile(mod, "native")
        cache = new_cache(program)
        state("add_sequence", cache, 0)
        forward, ids = program["forward"], np.array([[3]], np.int32)
        for _ in range(2):
            state("begin_forward", cache, [0], [1])
            counts.append(python_calls(partial(forward, ids, cache, params)))
            state("end_forward", cache)
    assert counts[1] == counts[3] < 100


def test_layers_with_sinks_are_called_from_the_text(opened: list[bool]) -> None:
    mod, params = exported(["mha"] * 2, has_sinks=True)
    results = []
    for target in ("native", "numpy"):
        program = relaxpy.compile(mod, target)
        cache = new_cache(program)
        state("add_sequence", cache, 0)
        state("begin_forward", cache, [0], [5])
        results.append(program["forward"](np.array([[1, 2, 3, 4, 5]], np.int32), cache, params))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    assert opened == []


def failure(program: Any, *args: Any) -> str:
    with pytest.raises(RelaxpyError) as caught:
        program["forward"](*args)
    return str(caught.value)


def test_errors_are_those_of_the_text_and_leave_the_cache_usable() -> None:
    mod, params = exported(["mha"] * 3)
    fewer, _ = exported(["mha"] * 2)
    other, _ = exported(["mha"] * 3, "float16")
    native = relaxpy.compile(mod, "native")
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    ids = np.array([[1, 2, 3]], np.int32)
    messages = []
    for program in (native, text):
        found = []
        cache = new_cache(program)
        found.append(failure(program, ids, cache, params))  # no call has begun
        state("add_sequence", cache, 0)
        state("begin_forward", cache, [0], [2])
        found.append(failure(program, ids, cache, params))  # it is one of two tokens
        state("end_forward", cache)
        state("popn", cache, 0, 2)
        for module in (fewer, other):
            wrong = new_cache(relaxpy.compile(module, "native"))
            state("add_sequence", wrong, 0)
            state("begin_forward", wrong, [0], [3])
            found.append(failure(program, ids, wrong, params))
        found.append(failure(program, ids, "no cache", params))
        found.append(failure(program, ids, cache, params[:-1]))
        state("begin_forward", cache, [0], [3])
        found.append(failure(program, np.array([[1, WORDS, 3]], np.int32), cache, params))
        result = program["forward"](ids, cache, params)
        state("end_forward", cache)
        messages.append((found, result.tobytes()))
    assert messages[0] == messages[1]
    expected = ["no call has begun", "expected (2, ", "layers 0 to 1, found 2", "datatype float32"]
    for message, part in zip(messages[0][0], expected, strict=False):
        assert part in message


def test_a_users_function_replaces_that_of_the_cache() -> None:
    mod, params = exported(["mha"] * 2)
    program = relaxpy.compile(mod, "native")
    cache = new_cache(program)
    state("add_sequence", cache, 0)
    state("begin_forward", cache, [0], [1])
    name, layers = "vm.builtin.attention_kv_cache_attention_with_fused_qkv", []
    known = relaxpy.get_global_func(name)

    def own(cache: Any, layer: int, scale: float, qkv: Any, out: Any) -> None:
        layers.append(layer)
        known(cache, layer, scale, qkv, out)

    ids = np.array([[1]], np.int32)
    expected = program["forward"](ids, cache, params)
    relaxpy.register_func(name, own, override=True)
    try:
        found = program["forward"](ids, cache, params)
    finally:
        relaxpy.register_func(name, known, override=True)
    assert layers == [0, 1]
    np.testing.assert_array_equal(found, expected)
    assert isinstance(cache, Pages)


def test_a_saved_program_runs_its_caches(tmp_path: Path, opened: list[bool]) -> None:
    mod, params = exported(["mha"] * 2, "float16")
    program = relaxpy.compile(mod, "native")
    program.save(tmp_path / "model")
    loaded = relaxpy.load_executable(tmp_path / "model", native_code=True)
    results = []
    for each in (program, loaded):
        cache = new_cache(each)
        state("add_sequence", cache, 0)
        for count in (7, 1, 1):
            state("begin_forward", cache, [0], [count])
            results.append(each["forward"](np.full((1, count), 2, np.int32), cache, params))
            state("end_forward", cache)
    assert opened == [True] * 6
    for first, second in zip(results[:3], results[3:], strict=True):
        np.testing.assert_array_equal(first, second)


CALLS = """
@R.function
def main(box: R.Object, x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
    with R.dataflow():
        y = R.add(x, x)
        z = R.call_dps_packed("test.boxed", (box, R.prim_value(2), R.prim_value(0.5), y),
                              out_sinfo=R.Tensor((n, 3), "float32"))
        w = R.add(z, x)
        R.output(w)
    return w
"""


@pytest.fixture
def boxed() -> Iterator[None]:
    """A packed function that has no programs for its calls."""

    @provided("test.boxed", pure=True, programs=lambda box, calls: None)
    def call(box: Any, number: int, factor: float, x: Any, out: Any) -> None:
        box.append(len(x))
        if len(x) == 2:
            raise ValueError("two rows")
        if len(x) == 3 and len(box) == 1:
            raise KeyboardInterrupt
        out[...] = x * factor + number

    yield
    remove_global_func("test.boxed")


def test_calls_without_programs_run_in_python(boxed: None) -> None:
    mod = from_source(CALLS)
    program = relaxpy.compile(mod, "native")
    box: list[int] = []
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(program["main"](box, x), 2 * x * 0.5 + 2 + x)
    assert box == [4]
    with pytest.raises(ValueError, match="two rows") as caught:
        program["main"](box, x[:2])
    assert isinstance(caught.value, RelaxpyError)
    assert "call_dps_packed" in str(caught.value)
    assert box == [4, 2, 2]  # the text runs again to find the position
    box.clear()
    with pytest.raises(KeyboardInterrupt):
        program["main"](box, x[:3])
    np.testing.assert_array_equal(program["main"](box, x[:3]), (2 * x * 0.5 + 2 + x)[:3])
