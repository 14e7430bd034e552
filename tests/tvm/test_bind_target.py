"""Passes by which programs of TVM choose targets and schedules."""

import pytest

from relaxpy import IRModule, dlight, tir
from relaxpy.errors import MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source
from relaxpy.target import Target
from relaxpy.tir.transform import BindTarget


def kernel(value: int) -> tir.PrimFunc:
    return tir.PrimFunc([], tir.Evaluate(value))


def test_a_target_is_bound_to_kernels_that_have_none() -> None:
    mod = IRModule({"f": kernel(1), "g": kernel(2).with_attr("target", Target("llvm"))})
    after = BindTarget(Target("cuda"))(mod)
    assert [after[name].attrs["target"] for name in ("f", "g")] == ["cuda", "llvm"]
    assert BindTarget(Target("numpy"))(after) is after
    with pytest.raises(MisuseError, match="target is a Target, found 'cuda'"):
        BindTarget("cuda")  # type: ignore[arg-type]


def test_default_schedules_leave_modules_as_they_are() -> None:
    mod = IRModule({"f": kernel(1)})
    rules = dlight.gpu.Matmul(), dlight.gpu.Fallback(), dlight.cpu.GEMV()
    assert dlight.ApplyDefaultSchedule(*rules)(mod) is mod


def test_kernels_for_gpus_allocate_no_global_memory() -> None:
    text = """
@T.prim_func(private=True)
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    C = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("c"):
            v = T.axis.spatial(4, i)
            C[v] = A[v] + T.float32(1)
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            B[v] = C[v]
"""
    shared = text.replace(
        'C = T.alloc_buffer((4,), "float32"', 'C = T.alloc_buffer((4,), scope="shared"'
    )
    mod = IRModule({"f": from_source(text)})
    after = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(mod)
    assert_structural_equal(after["f"], from_source(shared))
    assert_structural_equal(dlight.ApplyDefaultSchedule(dlight.gpu.GEMV())(mod)["f"], mod["f"])
    scheduled = IRModule({"f": mod["f"].with_attr("tir.is_scheduled", 1)})
    assert dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(scheduled) is scheduled


def test_a_rule_is_an_object() -> None:
    with pytest.raises(MisuseError, match="expected a ScheduleRule, found 3"):
        dlight.ApplyDefaultSchedule(3)  # type: ignore[arg-type]
