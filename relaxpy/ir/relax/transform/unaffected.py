"""The passes that tune kernels or use several GPUs, which leave every module as it is.

Kernels call NumPy, so they have no schedules and run on the processor. Scripts that apply these
passes run unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config

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


@dataclass(frozen=True)
class MetaScheduleApplyDatabase(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that a database could hold.

    Errors:
        MisuseError (also TypeError): `work_dir` is not a string.
    """

    work_dir: str | None = None
    enable_warning: bool = False


@dataclass(frozen=True)
class MetaScheduleTuneTIR(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): an option is of another type.
    """

    work_dir: str
    max_trials_global: int


@dataclass(frozen=True)
class MetaScheduleTuneIRMod(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): an option is of another type.
    """

    params: Mapping[str, Any]
    work_dir: str
    max_trials_global: int
    max_trials_per_task: int | None = None
    op_names: Sequence[str] | None = None


@dataclass(frozen=True)
class FewShotTuning(_Unaffected):
    """Leaves the module as it is: kernels have no schedules that could be tuned.

    Errors:
        MisuseError (also TypeError): `valid_count` is not an integer.
    """

    valid_count: int = 1
    benchmark: bool = False


@dataclass(frozen=True)
class IPCAllReduceRewrite(_Unaffected):
    """Leaves the module as it is: memory that several GPUs share does not exist.

    Errors:
        MisuseError (also TypeError, ValueError): the strategy is not 1 or 2.
    """

    allreduce_strategy: Literal[1, 2]


@dataclass(frozen=True)
class LowerGPUIPCAllocStorage(_Unaffected):
    """Leaves the module as it is: memory that several GPUs share does not exist."""
