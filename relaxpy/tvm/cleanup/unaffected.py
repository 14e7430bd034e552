"""The passes for memory that several GPUs share, which leave every module unchanged (no-ops).

The pipelines of programs of TVM name them.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.support.dataclass import dataclass


class _Unaffected(Pass):
    """A pass that returns the module itself."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


@dataclass(frozen=True)
class IPCAllReduceRewrite(_Unaffected):
    """A no-op: memory that several GPUs share does not exist.

    Errors:
        MisuseError (also TypeError, ValueError): the strategy is not 1 or 2.
    """

    allreduce_strategy: Literal[1, 2]


@dataclass(frozen=True)
class LowerGPUIPCAllocStorage(_Unaffected):
    """A no-op: memory that several GPUs share does not exist."""
