"""Caches of pages in native functions: attention runs without Python, with the same results."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import PACKED_CALLS
from relaxpy.exec.program.graph.sessions import Plan, Session
from relaxpy.plugins.nn.caches.pages import PagedKVCache as Pages
from tests.fuzz.seed import SEED
from tests.plugins.nn.language import WORDS, Decoding, exported, new_cache, state

pytest.importorskip("llvmlite")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan | None]:
    """The plan of each call of a native function on a cache."""
    found: list[Plan | None] = []
    known = Session.plan

    def plan(session: Session, args: Any) -> Plan | None:
        found.append(known(session, args))
        return found[-1]

    monkeypatch.setattr(Session, "plan", plan)
    return found


def is_native(plan: Plan | None) -> bool:
    """True if a plan calls builtins only."""
    assert plan is not None
    functions = (function for steps in plan.steps for function in steps[::2])
    return all(isinstance(function, BuiltinFunctionType) for function in functions)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kinds", [["mha"] * 3, ["mha_sliding", "mha", "mha_sliding"]])
def test_random_steps_are_those_in_python(
    kinds: list[str], dtype: str, planned: list[Plan | None]
) -> None:
    mod, params = exported(kinds, dtype)
    native, plain = relaxpy.compile(mod, "native"), relaxpy.compile(mod, "numpy")
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    tolerance = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    for sliding in (0, 1):
        rng = random.Random(f"{SEED} {kinds} {dtype} {sliding}")
        decoding = Decoding([native, text, plain], params, rng, sliding)
        before = len(planned)
        calls = 0
        for _ in range(200):
            if results := decoding.step():
                first, second, third = results
                np.testing.assert_array_equal(first, second)
                np.testing.assert_allclose(first, third, rtol=tolerance, atol=tolerance)
                calls += 1
        assert len(planned) - before == calls > 50
    kinds_of = {is_native(plan) for plan in planned}
    assert kinds_of == {True, False}  # some sequences are in several runs of slots


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


def test_layers_with_sinks_are_called_from_the_text(planned: list[Plan | None]) -> None:
    mod, params = exported(["mha"] * 2, has_sinks=True)
    results = []
    for target in ("native", "numpy"):
        program = relaxpy.compile(mod, target)
        cache = new_cache(program)
        state("add_sequence", cache, 0)
        state("begin_forward", cache, [0], [5])
        results.append(program["forward"](np.array([[1, 2, 3, 4, 5]], np.int32), cache, params))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    assert planned == []


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


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_users_function_replaces_that_of_the_cache(is_loaded: bool, tmp_path: Path) -> None:
    """Also one that is not registered as pure, though the text of a file is made after that."""
    mod, params = exported(["mha"] * 2)
    program = relaxpy.compile(mod, "native")
    if is_loaded:
        program.save(tmp_path / "model")
        program = relaxpy.load_executable(tmp_path / "model", native_code=True)
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


@pytest.mark.parametrize("number", [0, 1])
def test_a_users_kernel_is_called_as_by_the_text(number: int) -> None:
    """It may have effects, and its exceptions are those of a packed function."""
    mod, params = exported(["mha"] * 3)
    native = relaxpy.compile(mod, "native")
    with PACKED_CALLS.off():
        text = relaxpy.compile(mod, "native")
    ids = np.array([[1, 2]], np.int32)
    outcomes: list[Any] = []
    for program in (native, text):
        made = new_cache(program)
        kernels = [made.rotary[0], made.attention]
        known, calls = kernels[number], [0]

        def own(*args: Any, known: Any = known, calls: list[int] = calls) -> None:
            calls[0] += 1
            if calls[0] == 5:
                raise ValueError("for a reason")
            known(*args)

        kernels[number] = own
        rotary, limits = (kernels[0], made.rotary[1]), (6, 600, 64, 4, 0, 0)
        sizes = (made.heads, made.kv_heads), (made.d_qk, made.d_v)
        options = made.kinds, *sizes, made.dtype, rotary, kernels[1]
        cache = Pages(limits, *options, rotates_by_head=True)
        state("add_sequence", cache, 0)
        state("begin_forward", cache, [0], [2])
        outcomes.append(program["forward"](ids, cache, params).tobytes())
        with pytest.raises(ValueError, match="for a reason") as caught:
            program["forward"](ids, cache, params)
        outcomes.append((type(caught.value).__bases__, str(caught.value), calls))
    assert outcomes[:2] == outcomes[2:]


def test_a_saved_program_runs_its_caches(tmp_path: Path, planned: list[Plan | None]) -> None:
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
    assert [*map(is_native, planned)] == [True] * 6
    for first, second in zip(results[:3], results[3:], strict=True):
        np.testing.assert_array_equal(first, second)
