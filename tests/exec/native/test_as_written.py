"""Loops of kernels run as they are written, and give the values of the reference evaluator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.exec.loops.support import check
from tests.exec.loops.written import kernel
from tests.fuzz.kernels.compare import examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.primitives import schedule_at_random
from tests.fuzz.scheduled_kernels import KERNELS, arguments
from tests.fuzz.seed import COUNT, SEED

compile_as_written: Callable[..., relaxpy.Executable] = partial(
    relaxpy.compile, target="native", schedules="as written"
)


@pytest.mark.parametrize("name", KERNELS)
def test_random_schedules_keep_the_values(name: str) -> None:
    func, shapes = KERNELS[name]
    expected = arguments(shapes)
    relaxpy.compile(func, target="reference")[func.__name__](*expected)
    for number in range(max(2, COUNT // 10)):
        sch, applied = schedule_at_random(func, random.Random(f"{SEED} {name} {number}"), 16)
        results = arguments(shapes)
        ex = compile_as_written(sch.mod)
        ex["main"](*results)
        assert {row.backend for row in ex.report()} == {"native"}
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted, f"{number}: {applied}\n{sch.trace}")


@pytest.mark.parametrize("number", range(max(6, COUNT // 3)))
def test_random_kernels_have_the_values_of_the_oracle(number, monkeypatch) -> None:
    monkeypatch.setattr(relaxpy, "compile", partial(relaxpy.compile, schedules="as written"))
    assert not examine(generate(f"{SEED} as written {number}"), ["native"], trip=False).failures


@T.prim_func
def matmul(
    A: T.Buffer((37, 40), "float32"),
    B: T.Buffer((40, 48), "float32"),
    C: T.Buffer((37, 48), "float32"),
):
    for i, j, k in T.grid(37, 48, 40):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def scheduled(*kinds: str) -> tir.Schedule:
    """The matrix product in tiles, with loops of these kinds."""
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 8])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    for kind in kinds:
        getattr(sch, kind)({"parallel": i0, "vectorize": j1, "unroll": k1}[kind])
    return sch


def row(ex: relaxpy.Executable) -> Any:
    [only] = ex.report()
    return only


@pytest.mark.parametrize(
    ("kinds", "method"),
    [
        ((), "as written"),
        (("parallel",), "as written, parallel i_0"),
        (("vectorize", "unroll"), "as written, unrolled k_1, vectorized j_1"),
        (("parallel", "vectorize"), "as written, parallel i_0, vectorized j_1"),
    ],
)
def test_only_annotated_loops_are_not_serial(kinds: tuple[str, ...], method: str) -> None:
    ex = compile_as_written(scheduled(*kinds).mod)
    assert row(ex).method == f"native, {method}"
    code = ex.kernel_source("main", "llvm")
    assert ("x float>" in code) == ("vectorize" in kinds)
    assert ("relaxpy_pool" in code) == ("parallel" in kinds)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((37, 40), (40, 48)))
    c = np.full((37, 48), 9, "float32")
    ex["main"](a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    # The loops have the order of the text; those of the init are a copy, before the reduction.
    order = re.findall(r"(?:for|tasks of) (\w+) <(?!=)", ex.kernel_source("main", "tree"))
    assert (order[:2], order[-4:]) == (["i_0", "j_0"], ["k_0", "i_1", "k_1", "j_1"])


SHIFTED = """
def main(A: f32[n], B: f32[n]):
    for i in T.{kind}(1, n):
        A[i] = A[i - 1] + B[i]
"""


@pytest.mark.parametrize("kind", ["parallel", "vectorized", "unroll"])
def test_a_loop_whose_iterations_depend_on_each_other_is_serial(kind: str) -> None:
    func = kernel(SHIFTED.format(kind=kind))
    ex = compile_as_written(func)
    serial = "loop i is serial: its iterations may depend on each other"
    assert row(ex).reason == ("" if kind == "unroll" else serial)
    whole = np.arange(1, 90, dtype="float32")
    check(func, whole, whole, compiled=[ex["main"]])


OTHERS = [
    """
def main(A: f32[n, m], B: f32[n, m]):
    for i in T.parallel(n):
        for j in T.vectorized(m):
            B[i, j] = T.if_then_else(j > 0, A[i, T.max(j - 1, 0)], 0) * 2
""",
    """
def main(A: f32[n, m], B: i32[n, m]):
    for i in T.vectorized(n):
        for j in range(m):
            if A[i, j] < 0:
                B[i, j] = T.Cast("int32", j) - 7
            else:
                B[i, j] = T.Cast("int32", i)
""",
    """
def main(A: f32[n, m], B: f32[n]):
    for i in T.parallel(n):
        B[i] = 0
        for j in range(m):
            B[i] = T.max(B[i], A[i, j])
""",
    """
def main(A: f16[n, m], B: f16[m, n]):
    for i in range(n):
        for j in T.vectorized(m):
            B[j, i] = T.exp(A[i, j])
""",
    """
def main(A: i8[n, m], B: i64[n, m]):
    for i in range(n):
        for j in T.vectorized(m):
            B[i, j] = T.Cast("int64", A[i, j]) // 3 + i % 2
""",
]


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (5, 7), (0, 4), (4, 0), (17, 33)])
def test_conditions_casts_and_strides_in_vectors(text: str, shape: tuple[int, int]) -> None:
    func, rng = kernel(text), np.random.default_rng(1)
    args = []
    for buffer in func.buffer_map.values():
        sizes = dict(zip(("n", "m"), shape, strict=True))
        dims = [sizes[str(n)] for n in buffer.shape]
        args.append(rng.integers(-3, 4, dims).astype(buffer.dtype.numpy()))
    ex = compile_as_written(func)
    assert row(ex).reason == ""
    check(func, *args, rtol=1e-3, compiled=[ex["main"]])


def test_an_index_outside_is_an_error() -> None:
    func = kernel("""
def main(A: f32[n], P: i32[n], B: f32[n]):
    for i in T.vectorized(n):
        B[i] = A[P[i]]
""")
    run = compile_as_written(func)["main"]
    a, b = np.arange(40, dtype="float32"), np.zeros(40, "float32")
    run(a, np.arange(39, -1, -1, dtype="int32"), b)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises(RuntimeCheckError, match="index 40 is outside"):
        run(a, np.full(40, 40, "int32"), b)


@I.ir_module
class Model:
    @T.prim_func
    def twice(x: T.handle, y: T.handle):
        n = T.int64()
        X, Y = T.match_buffer(x, (n, 8)), T.match_buffer(y, (n, 8))
        for i in T.parallel(n):
            for j in T.vectorized(8):
                with T.block("Y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        cls = Model
        with R.dataflow():
            y = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((n, 8), "float32"))
            R.output(y)
        return y


@pytest.mark.parametrize("native_code", [False, True])
def test_kernels_of_a_module_and_of_a_file(native_code: bool, tmp_path: Path) -> None:
    x = np.arange(24, dtype="float32").reshape(3, 8)
    ex = compile_as_written(Model)
    ex.save(tmp_path / "model.rxp")
    loaded = relaxpy.load_executable(tmp_path / "model.rxp", native_code=native_code)
    for executable in (ex, loaded):
        np.testing.assert_array_equal(executable["main"](x), 2 * x)
        methods = {r.method for r in executable.report()}
        assert methods == {"native, as written, parallel i, vectorized j"}


def test_what_cannot_run_as_written_is_said() -> None:
    with pytest.raises(MisuseError, match='needs the target "native", found "numpy"'):
        relaxpy.compile(matmul, target="numpy", schedules="as written")
    with pytest.raises(MisuseError, match="schedules is 'as written' or None, found 'fast'"):
        relaxpy.compile(matmul, schedules="fast")
    relaxpy.compile(matmul, target="reference", schedules="as written")
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = T.call_pure_extern("float32", "test.unknown", A[i])
""")
    [found] = compile_as_written(func).report()
    assert (found.backend, found.reason) == ("numpy", "not native: it calls functions")
