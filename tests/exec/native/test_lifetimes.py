"""Programs are freed in any order, with whatever uses them, and what is left of them still runs.

The tests of this file and of entries run again in a process whose allocator overwrites what is
freed, as only there every use of such memory shows.
"""

import gc
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy.ir.module import IRModule
from tests.ir.relax.texts import module

pytest.importorskip("llvmlite")

ROOT = Path(__file__).parents[3]
TESTS = ("test_lifetimes.py", "test_entry.py", "test_static_entry.py")
OVERWRITES = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.perturb=170",
    "RELAXPY_FREED_MEMORY": "overwritten",
}
KERNEL = """
@kernel
def double(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, ({size},), "float32")
    B = T.match_buffer(b, ({size},), "float32")
    for i in range({size}):
        with T.block("double"):
            v = T.axis.spatial({size}, i)
            B[v] = A[v] * T.float32(2)
"""
PROGRAMS: dict[str, tuple[IRModule, float]] = {
    "fixed": (module("def main(x: f32[4]): return R.add(x, R.const(1.0))"), 3),
    "symbolic": (module("def main(x: f32[n]): return R.add(x, R.const(1.0))"), 3),
    "of a tuple": (module("def main(x: f32[4]): return R.add(x, x), R.exp(x)"), 4),
    "of two functions": (
        module("""
        @private
        def twice(x: f32[n]): return R.add(x, x)
        def main(x: f32[4]): return R.negative(cls.twice(x))
        """),
        -4,
    ),
    "of a closure": (
        module("""
        def main(x: f32[4]):
            @R.function
            def inner(y: f32[4]):
                return R.multiply(x, y)
            return inner(x)
        """),
        4,
    ),
    "of a condition": (
        module("""
        def main(x: f32[4]):
            if R.equal(R.sum(x), R.const(0.0)):
                y = x
            else:
                y = R.add(x, x)
            return y
        """),
        4,
    ),
    "one fixed kernel": (
        module(
            KERNEL.format(size="4").replace("n = T.int64()", "T.evaluate(0)")
            + "def main(x: f32[4]): return R.call_tir(cls.double, (x,), out_sinfo=f32[4])"
        ),
        4,
    ),
    "one symbolic kernel": (
        module(
            KERNEL.format(size="n")
            + "def main(x: f32[n]): return R.call_tir(cls.double, (x,), out_sinfo=f32[n])"
        ),
        4,
    ),
}
X = np.full(4, 2, np.float32)
Function = Callable[..., Any]


class Holder:
    """Refers to itself, so that only the collector frees what it holds."""

    def __init__(self, *held: object) -> None:
        self.held, self.itself = held, self


def loaded(mod: IRModule, path: Path) -> Function:
    relaxpy.compile(mod, "native").save(path / "model.rxp")
    return relaxpy.load_executable(path / "model.rxp")["main"]


WAYS: dict[str, Callable[[IRModule, Path], Function]] = {
    "compiled": lambda mod, path: relaxpy.compile(mod, "native")["main"],
    "loaded": loaded,
    "of a machine": lambda mod, path: relaxpy.VirtualMachine(relaxpy.compile(mod))["main"],
}


def check(kind: str, function: Function) -> None:
    """The function runs, on its fast path and on the other, and has errors of its own."""
    strided = np.repeat(X, 2)[::2]
    for argument in (X, strided):
        result = function(argument)
        first = result[0] if isinstance(result, tuple) else result
        assert first.tolist() == [PROGRAMS[kind][1]] * 4
    with pytest.raises(relaxpy.errors.RuntimeCheckError):
        function(X[:, None])


@pytest.mark.each_choice
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_collector_frees_each_kind_of_program(kind: str, way: str, tmp_path: Path) -> None:
    function = WAYS[way](PROGRAMS[kind][0], tmp_path)
    check(kind, function)
    Holder(function)
    del function
    gc.collect()


@settings(max_examples=5)
@given(
    drawn=st.lists(st.tuples(st.sampled_from([*PROGRAMS]), st.sampled_from([*WAYS])), max_size=4),
    rng=st.randoms(use_true_random=False),
)
def test_programs_are_freed_in_any_order(
    drawn: list[tuple[str, str]], rng: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("programs")
    held = [(kind, WAYS[way](PROGRAMS[kind][0], path)) for kind, way in drawn]
    while held:
        kind, function = held.pop(rng.randrange(len(held)))
        if rng.random() < 0.5:
            check(kind, function)
        Holder(function, *held[:1])
        del function
        if rng.random() < 0.5:
            gc.collect()
        if held:
            check(*rng.choice(held))
    gc.collect()


@pytest.mark.skipif(
    "RELAXPY_FREED_MEMORY" in os.environ or platform.libc_ver()[0] != "glibc",
    reason="runs under the allocator of glibc, once",
)
def test_nothing_that_is_freed_is_used() -> None:
    paths = [str(Path(__file__).with_name(name)) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | OVERWRITES, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stdout + run.stderr
