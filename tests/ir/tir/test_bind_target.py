"""Passes by which programs of TVM choose targets and schedules."""

import pytest

from relaxpy import dlight, tir
from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
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


def test_a_rule_is_an_object() -> None:
    with pytest.raises(MisuseError, match="expected a ScheduleRule, found 3"):
        dlight.ApplyDefaultSchedule(3)  # type: ignore[arg-type]
