"""The passes over Relax programs, each in a module that is named after it."""

from inspect import ismodule

from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter as BindingRewriter,
    map_bindings as map_bindings,
)
from relaxpy.ir.relax.transform.algebra.adjust_matmul_order import (
    AdjustMatmulOrder as AdjustMatmulOrder,
)
from relaxpy.ir.relax.transform.algebra.combine_parallel_matmul import (
    CombineParallelMatmul as CombineParallelMatmul,
)
from relaxpy.ir.relax.transform.algebra.decompose_ops import (
    DecomposeOpsForInference as DecomposeOpsForInference,
    DecomposeOpsForTraining as DecomposeOpsForTraining,
)
from relaxpy.ir.relax.transform.algebra.expand_matmul_of_sum import (
    ExpandMatmulOfSum as ExpandMatmulOfSum,
)
from relaxpy.ir.relax.transform.algebra.fold_batchnorm_to_conv2d import (
    FoldBatchnormToConv2D as FoldBatchnormToConv2D,
)
from relaxpy.ir.relax.transform.algebra.reorder_permute_dims_after_concat import (
    ReorderPermuteDimsAfterConcat as ReorderPermuteDimsAfterConcat,
)
from relaxpy.ir.relax.transform.algebra.reorder_take_after_matmul import (
    ReorderTakeAfterMatmul as ReorderTakeAfterMatmul,
)
from relaxpy.ir.relax.transform.algebra.share_sums import ShareSums as ShareSums
from relaxpy.ir.relax.transform.algebra.to_mixed_precision import (
    ToMixedPrecision as ToMixedPrecision,
)
from relaxpy.ir.relax.transform.cleanup.annotate_tir_op_pattern import (
    AnnotateTIROpPattern as AnnotateTIROpPattern,
)
from relaxpy.ir.relax.transform.cleanup.attach_global_symbol import (
    AttachGlobalSymbol as AttachGlobalSymbol,
)
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import (
    CanonicalizeBindings as CanonicalizeBindings,
)
from relaxpy.ir.relax.transform.cleanup.compute_prim_value import (
    ComputePrimValue as ComputePrimValue,
)
from relaxpy.ir.relax.transform.cleanup.convert_to_dataflow import (
    ConvertToDataflow as ConvertToDataflow,
)
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import (
    DeadCodeElimination as DeadCodeElimination,
)
from relaxpy.ir.relax.transform.cleanup.eliminate_common_subexpr import (
    EliminateCommonSubexpr as EliminateCommonSubexpr,
)
from relaxpy.ir.relax.transform.cleanup.expand_tuple_arguments import (
    ExpandTupleArguments as ExpandTupleArguments,
)
from relaxpy.ir.relax.transform.cleanup.fold_constant import FoldConstant as FoldConstant
from relaxpy.ir.relax.transform.cleanup.inline_private_functions import (
    InlinePrivateFunctions as InlinePrivateFunctions,
)
from relaxpy.ir.relax.transform.cleanup.lambda_lift import LambdaLift as LambdaLift
from relaxpy.ir.relax.transform.cleanup.realize_vdevice import RealizeVDevice as RealizeVDevice
from relaxpy.ir.relax.transform.cleanup.remove_purity_checking import (
    RemovePurityChecking as RemovePurityChecking,
)
from relaxpy.ir.relax.transform.cleanup.remove_redundant_reshape import (
    RemoveRedundantReshape as RemoveRedundantReshape,
)
from relaxpy.ir.relax.transform.cleanup.remove_unused_outputs import (
    RemoveUnusedOutputs as RemoveUnusedOutputs,
)
from relaxpy.ir.relax.transform.cleanup.remove_unused_parameters import (
    RemoveUnusedParameters as RemoveUnusedParameters,
)
from relaxpy.ir.relax.transform.cleanup.rewrite_dataflow_reshape import (
    RewriteDataflowReshape as RewriteDataflowReshape,
)
from relaxpy.ir.relax.transform.cleanup.to_non_dataflow import ToNonDataflow as ToNonDataflow
from relaxpy.ir.relax.transform.cleanup.topological_sort import TopologicalSort as TopologicalSort
from relaxpy.ir.relax.transform.cleanup.update_param_struct_info import (
    UpdateParamStructInfo as UpdateParamStructInfo,
)
from relaxpy.ir.relax.transform.cleanup.update_vdevice import UpdateVDevice as UpdateVDevice
from relaxpy.ir.relax.transform.function_pass import (
    DataflowBlockPass as DataflowBlockPass,
    FunctionPass as FunctionPass,
    dataflowblock_pass as dataflowblock_pass,
    function_pass as function_pass,
)
from relaxpy.ir.relax.transform.fusion.fold_views import FoldViews as FoldViews
from relaxpy.ir.relax.transform.fusion.fuse_ops import FuseOps as FuseOps
from relaxpy.ir.relax.transform.fusion.fuse_ops_by_pattern import (
    FuseOpsByPattern as FuseOpsByPattern,
)
from relaxpy.ir.relax.transform.fusion.fuse_tir import FuseTIR as FuseTIR
from relaxpy.ir.relax.transform.fusion.fuse_transpose_matmul import (
    FuseTransposeMatmul as FuseTransposeMatmul,
)
from relaxpy.ir.relax.transform.fusion.merge_composite_functions import (
    MergeCompositeFunctions as MergeCompositeFunctions,
)
from relaxpy.ir.relax.transform.fusion.remove_unused_kernel_outputs import (
    RemoveUnusedKernelOutputs as RemoveUnusedKernelOutputs,
)
from relaxpy.ir.relax.transform.fusion.run_codegen import RunCodegen as RunCodegen
from relaxpy.ir.relax.transform.fusion.split_call_tir_by_pattern import (
    SplitCallTIRByPattern as SplitCallTIRByPattern,
)
from relaxpy.ir.relax.transform.gradient.gradient import Gradient as Gradient
from relaxpy.ir.relax.transform.layout.alter_op_impl import AlterOpImpl as AlterOpImpl
from relaxpy.ir.relax.transform.layout.attach_attr_layout_free_buffers import (
    AttachAttrLayoutFreeBuffers as AttachAttrLayoutFreeBuffers,
)
from relaxpy.ir.relax.transform.layout.convert_layout import ConvertLayout as ConvertLayout
from relaxpy.ir.relax.transform.layout.optimize_layout_transform import (
    OptimizeLayoutTransform as OptimizeLayoutTransform,
)
from relaxpy.ir.relax.transform.layout.split_layout_rewrite_preproc import (
    SplitLayoutRewritePreproc as SplitLayoutRewritePreproc,
)
from relaxpy.ir.relax.transform.legalize import LegalizeOps as LegalizeOps
from relaxpy.ir.relax.transform.lowering.allocate_workspace import (
    AllocateWorkspace as AllocateWorkspace,
)
from relaxpy.ir.relax.transform.lowering.append_in_place import AppendInPlace as AppendInPlace
from relaxpy.ir.relax.transform.lowering.attach_extern_modules import (
    AttachExternModules as AttachExternModules,
)
from relaxpy.ir.relax.transform.lowering.call_tir_rewrite import CallTIRRewrite as CallTIRRewrite
from relaxpy.ir.relax.transform.lowering.dataflow_use_inplace_calls import (
    DataflowUseInplaceCalls as DataflowUseInplaceCalls,
)
from relaxpy.ir.relax.transform.lowering.kill_after_last_use import (
    KillAfterLastUse as KillAfterLastUse,
)
from relaxpy.ir.relax.transform.lowering.lower_alloc_tensor import (
    LowerAllocTensor as LowerAllocTensor,
)
from relaxpy.ir.relax.transform.lowering.lower_runtime_builtin import (
    LowerRuntimeBuiltin as LowerRuntimeBuiltin,
    VMBuiltinLower as VMBuiltinLower,
)
from relaxpy.ir.relax.transform.lowering.rewrite_cuda_graph import (
    RewriteCUDAGraph as RewriteCUDAGraph,
)
from relaxpy.ir.relax.transform.lowering.specialize_prim_func import (
    SpecializePrimFuncBasedOnCallSite as SpecializePrimFuncBasedOnCallSite,
)
from relaxpy.ir.relax.transform.lowering.static_plan_block_memory import (
    StaticPlanBlockMemory as StaticPlanBlockMemory,
)
from relaxpy.ir.relax.transform.lowering.vm_shape_lower import VMShapeLower as VMShapeLower
from relaxpy.ir.relax.transform.normalize import Normalize as Normalize
from relaxpy.ir.relax.transform.normalize_global_var import NormalizeGlobalVar as NormalizeGlobalVar
from relaxpy.ir.relax.transform.params.bind_params import BindParams as BindParams
from relaxpy.ir.relax.transform.params.bind_symbolic_vars import (
    BindSymbolicVars as BindSymbolicVars,
)
from relaxpy.ir.relax.transform.params.bundle_model_params import (
    BundleModelParams as BundleModelParams,
)
from relaxpy.ir.relax.transform.params.lazy_get_input import LazyGetInput as LazyGetInput
from relaxpy.ir.relax.transform.params.lazy_set_output import LazySetOutput as LazySetOutput
from relaxpy.ir.relax.transform.params.lazy_transform_params import (
    LazyTransformParams as LazyTransformParams,
)
from relaxpy.ir.relax.transform.params.lift_transform_params import (
    LiftTransformParams as LiftTransformParams,
)
from relaxpy.ir.relax.transform.params.quantize_weights import QuantizeWeights as QuantizeWeights
from relaxpy.ir.relax.transform.unaffected import (
    IPCAllReduceRewrite as IPCAllReduceRewrite,
    LowerGPUIPCAllocStorage as LowerGPUIPCAllocStorage,
)

__all__ = [name for name, value in globals().items() if not ismodule(value) and name[0] != "_"]
