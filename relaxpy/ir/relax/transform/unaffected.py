"""The passes that tune kernels or use several GPUs, which leave every module as it is.

Kernels call NumPy, so they have no schedules and run on the processor. Scripts that apply these
passes run unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, listed, register_config

# Options of TVM for the scheduling of kernels, which have no effect here.
for _name in (
    "tir.disable_assert",
    "tir.disable_storage_rewrite",
    "tir.disable_vectorize",
    "tir.merge_static_smem",
    "tir.use_async_copy",
):
    register_config(_name, bool)


class _Unaffected(Pass):
    """A pass that returns the module itself."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


def _require(option: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Errors: MisuseError if an option is of another type; a Boolean is not a number."""
    is_flag = isinstance(value, bool) and kinds is int
    if is_flag or not isinstance(value, kinds):
        raise MisuseError(f"{option} is {what}, found {value!r:.60}", about=value)


@dataclass(frozen=True)
class MetaScheduleApplyDatabase(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that a database could hold.

    Errors:
        MisuseError (also TypeError): `work_dir` is not a path.

    """

    work_dir: str | None = None
    enable_warning: bool = False

    def __post_init__(self) -> None:
        _require("work_dir", self.work_dir, (str, type(None)), "a path")


@dataclass(frozen=True)
class MetaScheduleTuneTIR(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): `work_dir` is not a path, or a number of trials not a number.

    """

    work_dir: str
    max_trials_global: int

    def __post_init__(self) -> None:
        _require("work_dir", self.work_dir, str, "a path")
        _require("max_trials_global", self.max_trials_global, int, "a number")


@dataclass(frozen=True)
class MetaScheduleTuneIRMod(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): `params` is not a table, `work_dir` not a path, a number of
            trials not a number, or `op_names` not a list of names.

    """

    params: Mapping[str, Any]
    work_dir: str
    max_trials_global: int
    max_trials_per_task: int | None = None
    op_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _require("params", self.params, Mapping, "a table of parameters")
        _require("work_dir", self.work_dir, str, "a path")
        _require("max_trials_global", self.max_trials_global, int, "a number")
        if self.max_trials_per_task is not None:
            _require("max_trials_per_task", self.max_trials_per_task, int, "a number")
        listed(self.op_names, "names of operators")


@dataclass(frozen=True)
class FewShotTuning(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): `valid_count` is not a number.

    """

    valid_count: int = 1
    benchmark: bool = False

    def __post_init__(self) -> None:
        _require("valid_count", self.valid_count, int, "a number")


@dataclass(frozen=True)
class IPCAllReduceRewrite(_Unaffected):
    """Leaves the module as it is: memory that several GPUs share does not exist.

    Errors:
        MisuseError (also TypeError, ValueError): `allreduce_strategy` is not 1 or 2.

    """

    allreduce_strategy: int

    def __post_init__(self) -> None:
        if self.allreduce_strategy not in (1, 2):
            raise MisuseError(
                f"allreduce_strategy is 1 (one shot) or 2 (two shots), "
                f"found {self.allreduce_strategy!r:.60}",
                about=self.allreduce_strategy,
            )


@dataclass(frozen=True)
class LowerGPUIPCAllocStorage(_Unaffected):
    """Leaves the module as it is: memory that several GPUs share does not exist."""
