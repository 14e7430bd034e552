"""The named pipelines of passes over Relax programs, which `compile` runs in order."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.ir.core.target import TARGETS, target_kind
from relaxpy.ir.pass_infra.passes import Pass, Sequential
from relaxpy.ir.relax.op.definition.registry import registered_ops
from relaxpy.ir.relax.op.definition.sharding import repeated_axes, reshaped_axes
from relaxpy.ir.relax.op.selection import IN_LOOPS
from relaxpy.ir.relax.transform.algebra.decompose_ops import FoldBatchnormToConv2D
from relaxpy.ir.relax.transform.algebra.share_sums import ShareSums
from relaxpy.ir.relax.transform.cleanup.annotate_tir_op_pattern import AnnotateTIROpPattern
from relaxpy.ir.relax.transform.cleanup.dataflow_blocks import ConvertToDataflow
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.relax.transform.cleanup.eliminate_common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.relax.transform.cleanup.fold_constant import FoldConstant
from relaxpy.ir.relax.transform.convert_layout import ChannelsLast, SplitLayoutRewritePreproc
from relaxpy.ir.relax.transform.fusion.cost import fusion_pays
from relaxpy.ir.relax.transform.fusion.fold_views import FoldViews
from relaxpy.ir.relax.transform.fusion.fuse_ops import FuseOps
from relaxpy.ir.relax.transform.fusion.fuse_tir import FuseTIR
from relaxpy.ir.relax.transform.fusion.fuse_zero_points import FuseZeroPoints
from relaxpy.ir.relax.transform.fusion.inline_decoding import InlineDecoding
from relaxpy.ir.relax.transform.fusion.remove_unused_kernel_outputs import RemoveUnusedKernelOutputs
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.relax.transform.rewrite_pass import Normalize


def legalize_pipeline() -> Pass:
    """Normal form, and one kernel for each operator: the least that a program needs to run."""
    return Sequential((Normalize(), LegalizeOps()), name="legalize")


def default_pipeline(target: object = None) -> Pass:
    """The pipeline of `compile`: fewer and larger kernels, where that pays on NumPy.

    Bindings without effects go into dataflow blocks, equal ones are computed once, constant
    normalisations become part of convolutions, and values that depend on constants only are
    computed at compile time. Kernels compute only the outputs that are used, read transposed
    operands without a copy, leave new layouts of weights to other kernels, and are fused as
    `fusion_pays` decides. For the target "native", matmuls decode packed weights and multiply 8-bit
    operands without their zero points, images have their channels last where filters are constant,
    and loops compute top-k and non-maximum suppression. The target
    "reference" runs the program as it is written, so that it shows what the passes have to
    preserve: its pipeline is `legalize`.
    """
    facts = TARGETS.get(target_kind(target))
    if facts is not None and facts.runs_as_written:
        return legalize_pipeline()
    is_native = facts is not None and facts.is_native
    loops = IN_LOOPS if is_native else None
    operators: tuple[Pass, ...] = (
        Normalize(),  # all passes need normal form
        ConvertToDataflow(min_size=1),  # fusion works inside of dataflow blocks
        ShareSums(),  # makes equal sums of means and variances, which are one after the next pass
        EliminateCommonSubexpr(),  # equal calls are legalised, and compiled, once
        FoldBatchnormToConv2D(constants_only=True),  # no kernel for the normalisation is left
    )
    if is_native:
        operators += (
            FuseZeroPoints(),  # matches quantised matmuls as operators, which are loops afterwards
            ChannelsLast(),  # operators have rules of layouts, kernels have none
        )
    kernels: tuple[Pass, ...] = (
        LegalizeOps(loops),  # from here on, calls are of kernels
        RemoveUnusedKernelOutputs(),  # their computation would keep other kernels alive
        FoldViews(),  # kernels index operands instead; no rearranged constants are folded then
        SplitLayoutRewritePreproc(),  # new layouts of constant weights, which the next pass folds
        FoldConstant(),  # after views, which cost no memory, before groups hide constants
        AnnotateTIROpPattern(),  # the patterns of kernels decide which are fused
    )
    if is_native:
        kernels += (InlineDecoding(),)  # decodes weights in matmuls, which FuseOps would not
    fusion = (
        FuseOps(rule=fusion_pays),  # groups of kernels are functions
        FuseTIR(),  # each of these functions is one kernel
        DeadCodeElimination(),  # kernels that are parts of others are not called any more
    )
    return Sequential((*operators, *kernels, *fusion), name="default")


def distributed_pipeline(own_params: bool = False) -> Pass:
    """The SPMD program of each worker, from a program with sharding annotations.

    `R.dist.annotate_sharding` says how some tensors are split; the others follow. The first worker
    has the arguments, and with `own_params` each worker its part of the parameters after the first
    `num_input`. The pipeline of `compile` comes after that.
    """
    from relaxpy.ir.relax.transform.distributed.lower_dist_ir import (
        LegalizeRedistribute,
        LowerDistIR,
        LowerGlobalViewToLocalView,
    )
    from relaxpy.ir.relax.transform.distributed.propagate_sharding import PropagateSharding

    # Their kernels would compute indices, but on parts they are the same operators.
    rules = (reshaped_axes, repeated_axes)
    on_parts = [n for n, op in registered_ops().items() if op.record.sharding in rules]
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
