"""Profiles of calls by kernel: calls, bytes, operations, and the share of measured peaks."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError
from relaxpy.exec.kernel.operations import operation_count
from relaxpy.exec.native import peak
from relaxpy.exec.profile import KernelProfile, KernelRow
from relaxpy.script import from_source, ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @T.prim_func
    def product(a: T.handle, B: T.Buffer((8, 4), "float32"), c: T.handle):
        n = T.int64()
        A, C = T.match_buffer(a, (n, 8)), T.match_buffer(c, (n, 4))
        for i, j, k in T.grid(n, 4, 8):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        n = T.int64()
        y = R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))
        z = R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))
        return (y, z)

    @R.function
    def other(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        n = T.int64()
        return R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))


ARGS = np.ones((5, 8), "float32"), np.ones((8, 4), "float32")


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_profile_counts_calls_bytes_and_operations(target: str) -> None:
    executable = relaxpy.compile(Module, target, relax_pipeline=None)
    profile = executable.profile(*ARGS, repeat=2)
    rows = {row.name: row for row in profile}
    assert rows.keys() == {"main", "product"}
    kernel = rows["product"]
    assert kernel.calls == 2
    assert kernel.backend == ("" if target == "reference" else target)
    assert kernel.bytes == 2 * 4 * (5 * 8 + 8 * 4 + 5 * 4)
    assert kernel.flops == 2 * 2 * 5 * 4 * 8
    assert kernel.share is None or kernel.share > 0
    assert 0 < kernel.duration < profile.duration
    assert abs(sum(row.duration for row in profile) - profile.duration) < 1e-6 + 1e-6
    assert executable.profile(*ARGS, function="other", repeat=1).rows[0].calls == 1


def test_a_profile_is_a_table() -> None:
    rows = (
        KernelRow("k", "native", 2, 3e-6, 6000, 12000, 0.5),
        KernelRow("main", "", 1, 1e-6),
    )
    profile = KernelProfile(rows, 4e-6)
    lines = [" ".join(line.split()) for line in str(profile).splitlines()]
    assert lines[0] == "kernel back end calls us % MB Mflop GB/s Gflop/s peak"
    assert lines[2] == "k native 2 3.0 75.0 0.006 0.012 2.0 4.0 50 %"
    assert lines[3] == "main 1 1.0 25.0"
    assert lines[5] == "total 3 4.0 100.0"
    assert repr(profile) == str(profile)
    assert profile._repr_html_().count("<tr>") == 4


def test_wrong_arguments_are_errors() -> None:
    executable = relaxpy.compile(Module, target="numpy", relax_pipeline=None)
    with pytest.raises(UnknownNameError, match="no function 'mian'"):
        executable.profile(*ARGS, function="mian")
    with pytest.raises(RuntimeCheckError):
        executable.profile(ARGS[0])
    with pytest.raises(MisuseError, match="repeat is a positive integer, found 0"):
        executable.profile(*ARGS, repeat=0)


COUNTS = {
    "B[i] = T.exp(A[i]) * T.float32(2)": 2 * 6,
    "B[i] = T.if_then_else(i < 3, A[i] + A[i + 1], A[0])": 6,
    "B[i + 1 - 1] = A[2 * i - i]": 0,
    "for j in range(i): B[i] = B[i] + A[j]": 6 * 2,  # in the middle, instead of 15
    "while B[i] < A[0]: B[i] = B[i] + T.float32(1)": None,
}


@pytest.mark.parametrize("body", COUNTS)
def test_operations_are_those_of_the_text(body: str) -> None:
    func = from_source(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n,)), T.match_buffer(b, (n,))
    for i in range(n):
        {body}
""")
    assert operation_count(func, [(6,), (6,)]) == COUNTS[body]


def test_peaks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "_ROUNDS", 1000)
    peak.peak_operations.cache_clear()
    assert peak.peak_operations("float") > 1e8
    peak.peak_operations.cache_clear()
    assert peak.peak_bytes(1000) == peak.peak_bytes(peak.LEAST_BYTES) > 1e7
