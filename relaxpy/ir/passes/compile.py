"""The passes that `compile` runs, in order, and the other named pipelines over Relax programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple

from relaxpy.ir.core.target import TARGETS, target_kind
from relaxpy.ir.ops.definition.axis_rules import repeated_axes, reshaped_axes
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.pass_infra.passes import Pass, Sequential
from relaxpy.ir.passes.algebra.decompose_ops import FoldBatchnormToConv2D, ShareSums
from relaxpy.ir.passes.cleanup.dataflow_blocks import ConvertToDataflow
from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.passes.cleanup.eliminate_common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.passes.cleanup.fold_constant import FoldConstant
from relaxpy.ir.passes.convert_layout import ChannelsLast, SplitLayoutRewritePreproc
from relaxpy.ir.passes.fusion.fold_views import FoldViews
from relaxpy.ir.passes.fusion.fuse_ops import AnnotateTIROpPattern, FuseOps, FuseTIR
from relaxpy.ir.passes.fusion.fuse_zero_points import FuseZeroPoints
from relaxpy.ir.passes.fusion.grouping import fusion_pays
from relaxpy.ir.passes.fusion.inline_decoding import InlineDecoding
from relaxpy.ir.passes.fusion.remove_unused_kernel_outputs import RemoveUnusedKernelOutputs
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.passes.rewrite_pass import Normalize


class Step(NamedTuple):
    """A pass of the pipeline of `compile`, and the reason for its position."""

    create: Callable[[], Pass]
    reason: str
    on: Literal["all", "native", "others"] = "all"
    """The targets."""


STEPS: Final = (
    Step(Normalize, "all passes need normal form"),
    Step(partial(ConvertToDataflow, min_size=1), "fusion works inside of dataflow blocks"),
    Step(ShareSums, "makes equal sums of means and variances, which are one after the next pass"),
    Step(EliminateCommonSubexpr, "equal calls are legalised, and compiled, once"),
    Step(
        partial(FoldBatchnormToConv2D, constants_only=True),
        "no kernel for the normalisation is left",
    ),
    Step(FuseZeroPoints, "matches quantised matmuls as operators, which are loops later", "native"),
    Step(ChannelsLast, "operators have rules of layouts, kernels have none", "native"),
    Step(partial(LegalizeOps, in_loops=True), "from here on, calls are of kernels", "native"),
    Step(LegalizeOps, "from here on, calls are of kernels", "others"),
    Step(RemoveUnusedKernelOutputs, "their computation would keep other kernels alive"),
    Step(FoldViews, "kernels index operands instead; no rearranged constants are folded then"),
    Step(SplitLayoutRewritePreproc, "new layouts of constant weights, which the next pass folds"),
    Step(FoldConstant, "after views, which cost no memory, before groups hide constants"),
    Step(AnnotateTIROpPattern, "the patterns of kernels decide which are fused"),
    Step(InlineDecoding, "decodes weights in matmuls, which FuseOps would not", "native"),
    Step(partial(FuseOps, rule=fusion_pays), "groups of kernels are functions"),
    Step(FuseTIR, "each of these functions is one kernel"),
    Step(DeadCodeElimination, "kernels that are parts of others are not called any more"),
)
"""The passes of `compile`, in order."""


def legalize_pipeline() -> Pass:
    """Normal form, and one kernel for each operator: the least that a program needs to run."""
    return Sequential((Normalize(), LegalizeOps()), name="legalize")


def default_pipeline(target: object = None) -> Pass:
    """The pipeline of `compile`: fewer and larger kernels, where that pays on NumPy.

    `STEPS` lists its passes, some of which are for the target "native" alone. The target
    "reference" runs the program as it is written, so that it shows what the passes have to
    preserve: its pipeline is `legalize`, without simplification of the values in kernels.
    """
    facts = TARGETS.get(target_kind(target))
    if facts is not None and facts.runs_as_written:
        return Sequential((Normalize(), LegalizeOps(as_written=True)), name="legalize")
    here = "native" if facts is not None and facts.is_native else "others"
    return Sequential(tuple(s.create() for s in STEPS if s.on in ("all", here)), name="default")


def distributed_pipeline(own_params: bool = False) -> Pass:
    """The SPMD program of each worker, from a program with sharding annotations.

    `R.dist.annotate_sharding` says how some tensors are split; the others follow. The first worker
    has the arguments, and with `own_params` each worker its part of the parameters after the first
    `num_input`. The pipeline of `compile` comes after that.
    """
    from relaxpy.ir.passes.distributed.lower_dist_ir import (
        LegalizeRedistribute,
        LowerDistIR,
        LowerGlobalViewToLocalView,
    )
    from relaxpy.ir.passes.distributed.propagate_sharding import PropagateSharding

    # Their kernels would compute indices, but on parts they are the same operators.
    rules = (reshaped_axes, repeated_axes)
    on_parts = [n for n, op in registered_ops().items() if op.record.axes in rules]
    steps = (
        Normalize(),
        PropagateSharding(),
        LegalizeOps(skip_ops=on_parts),
        LegalizeRedistribute(),
        LowerGlobalViewToLocalView(),
        LowerDistIR(own_params),
        DeadCodeElimination(),
        default_pipeline(),
    )
    return Sequential(steps, name="distributed")


PIPELINES: dict[str, Callable[..., Pass]] = {
    "default": default_pipeline,
    "distributed": distributed_pipeline,
    "legalize": legalize_pipeline,
}
