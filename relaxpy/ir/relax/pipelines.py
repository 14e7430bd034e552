"""The named pipelines of passes over Relax programs, and their stages for a target."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.entry import user_facing
from relaxpy.ir.core.target import TARGETS, target_kind
from relaxpy.ir.pass_infra.passes import Pass, Sequential
from relaxpy.ir.relax import transform
from relaxpy.ir.relax.op.definition.registry import registered_ops
from relaxpy.ir.relax.op.definition.sharding import repeated_axes, reshaped_axes
from relaxpy.ir.relax.op.selection import IN_LOOPS
from relaxpy.ir.relax.transform.distributed.legalize_redistribute import LegalizeRedistribute
from relaxpy.ir.relax.transform.distributed.lower_dist_ir import LowerDistIR
from relaxpy.ir.relax.transform.distributed.lower_global_view_to_local_view import (
    LowerGlobalViewToLocalView,
)
from relaxpy.ir.relax.transform.distributed.propagate_sharding import PropagateSharding
from relaxpy.ir.relax.transform.fusion.cost import fusion_pays
from relaxpy.ir.relax.transform.fusion.fuse_zero_points import FuseZeroPoints
from relaxpy.ir.relax.transform.fusion.inline_decoding import InlineDecoding
from relaxpy.ir.relax.transform.layout.channels_last import ChannelsLast


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
    transform.LegalizeOps,
    transform.AnnotateTIROpPattern,
    transform.FoldConstant,
    transform.FuseOps,
    transform.FuseTIR,
)
dataflow_lower_passes = _stage(
    "dataflow_lower_passes",
    "from dataflow blocks to calls that allocate their outputs",
    transform.RewriteDataflowReshape,
    transform.ToNonDataflow,
    transform.RemovePurityChecking,
    transform.CallTIRRewrite,
)
finalize_passes = _stage(
    "finalize_passes",
    "that plan memory, and make the calls of the runtime explicit",
    transform.StaticPlanBlockMemory,
    transform.LowerAllocTensor,
    transform.KillAfterLastUse,
    transform.LowerRuntimeBuiltin,
    transform.ComputePrimValue,
    transform.VMShapeLower,
    transform.AttachGlobalSymbol,
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


def legalize_pipeline() -> Pass:
    """Normal form, and one kernel for each operator: the least that a program needs to run."""
    return Sequential((transform.Normalize(), transform.LegalizeOps()), name="legalize")


def default_pipeline(target: object = None) -> Pass:
    """The pipeline of `compile`: fewer and larger kernels, where that pays on NumPy.

    Bindings without effects go into dataflow blocks, equal ones are computed once, constant
    normalisations become part of convolutions, and what depends on constants only is computed now.
    Kernels compute only the outputs that are used, read transposed operands as they are, leave new
    layouts of weights to other kernels, and are fused as `fusion_pays` decides. For the target
    "native", products decode weights in few bits and multiply bytes without their zero points,
    images have their channels last where filters are constant, and loops select the largest
    elements, and the boxes that others do not suppress. The target "reference" runs the program as
    it is written, so that it shows what the passes have to preserve: its pipeline is `legalize`.
    """
    facts = TARGETS.get(target_kind(target))
    if facts is not None and facts.runs_as_written:
        return legalize_pipeline()
    is_native = facts is not None and facts.is_native
    decoding = (InlineDecoding(),) if is_native else ()
    rewriting = (FuseZeroPoints(), ChannelsLast()) if is_native else ()
    steps = (
        transform.Normalize(),
        transform.ConvertToDataflow(min_size=1),
        transform.ShareSums(),
        transform.EliminateCommonSubexpr(),
        transform.FoldBatchnormToConv2D(constants_only=True),
        *rewriting,
        transform.LegalizeOps(IN_LOOPS if is_native else None),
        transform.RemoveUnusedKernelOutputs(),
        transform.FoldViews(),
        transform.SplitLayoutRewritePreproc(),
        transform.FoldConstant(),
        transform.AnnotateTIROpPattern(),
        *decoding,
        transform.FuseOps(rule=fusion_pays),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    )
    return Sequential(steps, name="default")


def zero_pipeline() -> Pass:
    """Legalisation, and fusion of kernels."""
    return Sequential(legalize_passes(), name="zero")


def default_build_pipeline() -> Pass:
    """TVM's lowering to explicit memory and calls of the runtime, without fusion."""
    steps = (transform.LegalizeOps(), *dataflow_lower_passes(), *finalize_passes())
    return Sequential(steps, name="default_build")


def static_shape_tuning_pipeline(
    total_trials: int = 0,
    target: object = None,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
) -> Pass:
    """Fusion as TVM prepares it for tuning; kernels of NumPy have nothing to tune.

    With `cpu_weight_prepack`, layouts of weights are rewritten in a function of its own. The other
    options have no effect.

    Errors:
        MisuseError (also ValueError): there is no such target.
    """
    target_kind(target)
    steps: list[Pass] = [transform.CanonicalizeBindings(), zero_pipeline()]
    if cpu_weight_prepack:
        steps += [
            transform.AttachAttrLayoutFreeBuffers(),
            transform.SplitLayoutRewritePreproc(),
            transform.LiftTransformParams(),
            transform.FoldConstant(),
        ]
    return Sequential(tuple(steps), name="static_shape_tuning")


def distributed_pipeline(own_params: bool = False) -> Pass:
    """The program of each worker, from a program with annotations of how tensors are split.

    `R.dist.annotate_sharding` says how some tensors are split; the others follow. The first worker
    has the arguments, and with `own_params` each worker its part of the parameters after the first
    `num_input`. The pipeline of `compile` comes after that.
    """
    # Their kernels would compute indices, but on parts they are the same operators.
    rules = (reshaped_axes, repeated_axes)
    on_parts = [n for n, op in registered_ops().items() if op.record.sharding in rules]
    steps = (
        transform.Normalize(),
        PropagateSharding(),
        transform.LegalizeOps(skip_ops=on_parts),
        LegalizeRedistribute(),
        LowerGlobalViewToLocalView(),
        LowerDistIR(own_params),
        transform.DeadCodeElimination(),
        default_pipeline(),
    )
    return Sequential(steps, name="distributed")


PIPELINES: dict[str, Callable[..., Pass]] = {
    "default": default_pipeline,
    "default_build": default_build_pipeline,
    "distributed": distributed_pipeline,
    "legalize": legalize_pipeline,
    "static_shape_tuning": static_shape_tuning_pipeline,
    "zero": zero_pipeline,
}
