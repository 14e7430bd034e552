"""TVM's pipelines: fusion without rules, and the lowering to explicit memory, which need not run.

`compile` accepts the results of these pipelines, and does as much itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relaxpy.ir.core.target import target_kind
from relaxpy.ir.pass_infra.passes import Pass, Sequential
from relaxpy.ir.passes.cleanup.dataflow_blocks import ToNonDataflow
from relaxpy.ir.passes.cleanup.fold_constant import FoldConstant
from relaxpy.ir.passes.fusion.fuse_ops import AnnotateTIROpPattern, FuseOps, FuseTIR
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.support.entry import user_facing
from relaxpy.tvm.cleanup import module_passes
from relaxpy.tvm.cleanup.parameters import RewriteDataflowReshape
from relaxpy.tvm.lowering import static_plan_block_memory
from relaxpy.tvm.lowering.call_tir_rewrite import CallTIRRewrite, LowerRuntimeBuiltin
from relaxpy.tvm.lowering.vm_shape_lower import VMShapeLower


def _stage(name: str, meaning: str, *kinds: Callable[[], Pass]) -> Callable[..., list[Pass]]:
    """The function that returns the passes of a stage for a target."""

    @user_facing
    def passes(target: object = None) -> list[Pass]:
        target_kind(target)
        return [kind() for kind in kinds]

    passes.__name__ = passes.__qualname__ = name
    passes.__doc__ = f"""The passes {meaning}.

    Errors:
        MisuseError (also ValueError): there is no such target.
    """
    return passes


library_dispatch_passes = _stage(
    "library_dispatch_passes", "that give operators to libraries: none, since kernels call NumPy"
)
legalize_passes = _stage(
    "legalize_passes",
    "from operators to fused kernels",
    LegalizeOps,
    AnnotateTIROpPattern,
    FoldConstant,
    FuseOps,
    FuseTIR,
)
dataflow_lower_passes = _stage(
    "dataflow_lower_passes",
    "from dataflow blocks to calls that allocate their outputs",
    RewriteDataflowReshape,
    ToNonDataflow,
    module_passes.RemovePurityChecking,
    CallTIRRewrite,
)
finalize_passes = _stage(
    "finalize_passes",
    "that plan memory, and make the calls of the runtime explicit",
    static_plan_block_memory.StaticPlanBlockMemory,
    static_plan_block_memory.LowerAllocTensor,
    static_plan_block_memory.KillAfterLastUse,
    LowerRuntimeBuiltin,
    module_passes.ComputePrimValue,
    VMShapeLower,
    module_passes.AttachGlobalSymbol,
)


@user_facing
def get_default_pipeline(target: object = None) -> Pass:
    """The pipeline that lowers a program to explicit memory and calls of the runtime.

    Errors:
        MisuseError (also ValueError): there is no such target.
    """
    return Sequential(
        (
            *library_dispatch_passes(target),
            *legalize_passes(target),
            *dataflow_lower_passes(target),
            *finalize_passes(target),
        ),
        name="default_pipeline",
    )


def zero_pipeline() -> Pass:
    """Legalisation, and fusion of kernels."""
    return Sequential(legalize_passes(), name="zero")


def default_build_pipeline() -> Pass:
    """TVM's lowering to explicit memory and calls of the runtime, without fusion."""
    steps = (LegalizeOps(), *dataflow_lower_passes(), *finalize_passes())
    return Sequential(steps, name="default_build")


PIPELINES: dict[str, Callable[..., Pass]] = {
    "default_build": default_build_pipeline,
    "zero": zero_pipeline,
}


def pipelines() -> Mapping[str, Callable[..., Pass]]:
    """The pipelines by their names."""
    return PIPELINES
