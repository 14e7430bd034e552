"""The passes over Relax programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.transform")
if TYPE_CHECKING:
    from relaxpy.exec.inspect.explain import Explanation as Explanation, explain as explain
    from relaxpy.ir.passes.algebra.decompose_ops import DecomposeOpsForInference as DecomposeOpsForInference, DecomposeOpsForTraining as DecomposeOpsForTraining, FoldBatchnormToConv2D as FoldBatchnormToConv2D, ShareSums as ShareSums
    from relaxpy.ir.passes.algebra.matmuls import AdjustMatmulOrder as AdjustMatmulOrder, CombineParallelMatmul as CombineParallelMatmul, ExpandMatmulOfSum as ExpandMatmulOfSum, ReorderPermuteDimsAfterConcat as ReorderPermuteDimsAfterConcat, ReorderTakeAfterMatmul as ReorderTakeAfterMatmul
    from relaxpy.ir.passes.algebra.to_mixed_precision import ToMixedPrecision as ToMixedPrecision
    from relaxpy.ir.passes.append_in_place import AppendInPlace as AppendInPlace, AttachExternModules as AttachExternModules
    from relaxpy.ir.passes.bind_params import BindParams as BindParams, BindSymbolicVars as BindSymbolicVars, BundleModelParams as BundleModelParams
    from relaxpy.ir.passes.cleanup.canonicalize_bindings import CanonicalizeBindings as CanonicalizeBindings
    from relaxpy.ir.passes.cleanup.dataflow_blocks import ConvertToDataflow as ConvertToDataflow, ToNonDataflow as ToNonDataflow, TopologicalSort as TopologicalSort
    from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination as DeadCodeElimination
    from relaxpy.ir.passes.cleanup.eliminate_common_subexpr import EliminateCommonSubexpr as EliminateCommonSubexpr
    from relaxpy.ir.passes.cleanup.fold_constant import FoldConstant as FoldConstant
    from relaxpy.ir.passes.cleanup.private_functions import InlinePrivateFunctions as InlinePrivateFunctions, LambdaLift as LambdaLift
    from relaxpy.ir.passes.convert_layout import ConvertLayout as ConvertLayout, SplitLayoutRewritePreproc as SplitLayoutRewritePreproc
    from relaxpy.ir.passes.fusion.codegen import FuseOpsByPattern as FuseOpsByPattern, MergeCompositeFunctions as MergeCompositeFunctions, RunCodegen as RunCodegen
    from relaxpy.ir.passes.fusion.fold_views import FoldViews as FoldViews
    from relaxpy.ir.passes.fusion.fuse_ops import AnnotateTIROpPattern as AnnotateTIROpPattern, FuseOps as FuseOps, FuseTIR as FuseTIR
    from relaxpy.ir.passes.fusion.grouping import fusion_pays as fusion_pays
    from relaxpy.ir.passes.fusion.remove_unused_kernel_outputs import RemoveUnusedKernelOutputs as RemoveUnusedKernelOutputs
    from relaxpy.ir.passes.gradient import Gradient as Gradient
    from relaxpy.ir.passes.legalize import LegalizeOps as LegalizeOps
    from relaxpy.ir.passes.lift_transform_params import LiftTransformParams as LiftTransformParams
    from relaxpy.ir.passes.quantize_weights import QuantizeWeights as QuantizeWeights
    from relaxpy.ir.passes.rewrite_pass import Normalize as Normalize
    from relaxpy.ir.relax.dpl.graph import FusionPattern as FusionPattern, PatternCheckContext as PatternCheckContext
    from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter as BindingRewriter, map_bindings as map_bindings
    from relaxpy.plugins.testing.bisect import Bisection as Bisection, bisect as bisect
    from relaxpy.relax.transform import legalize_ops as legalize_ops, transform as transform
    from relaxpy.tvm.alter_layout import AlterOpImpl as AlterOpImpl, AttachAttrLayoutFreeBuffers as AttachAttrLayoutFreeBuffers, OptimizeLayoutTransform as OptimizeLayoutTransform
    from relaxpy.tvm.cleanup.module_passes import AttachGlobalSymbol as AttachGlobalSymbol, ComputePrimValue as ComputePrimValue, DataflowBlockPass as DataflowBlockPass, FunctionPass as FunctionPass, IPCAllReduceRewrite as IPCAllReduceRewrite, LowerGPUIPCAllocStorage as LowerGPUIPCAllocStorage, NormalizeGlobalVar as NormalizeGlobalVar, RealizeVDevice as RealizeVDevice, RemovePurityChecking as RemovePurityChecking, UpdateVDevice as UpdateVDevice, dataflowblock_pass as dataflowblock_pass, function_pass as function_pass
    from relaxpy.tvm.cleanup.parameters import ExpandTupleArguments as ExpandTupleArguments, RemoveRedundantReshape as RemoveRedundantReshape, RemoveUnusedOutputs as RemoveUnusedOutputs, RemoveUnusedParameters as RemoveUnusedParameters, RewriteDataflowReshape as RewriteDataflowReshape, UpdateParamStructInfo as UpdateParamStructInfo, UpdateParamStructInfo as UpdateParamStructInfo
    from relaxpy.tvm.cleanup.parameters import UpdateParamStructInfo as UpdateParamType
    from relaxpy.tvm.lazy_params import LazyGetInput as LazyGetInput, LazySetOutput as LazySetOutput, LazyTransformParams as LazyTransformParams
    from relaxpy.tvm.libraries.split_call_tir_by_pattern import FuseTransposeMatmul as FuseTransposeMatmul, SplitCallTIRByPattern as SplitCallTIRByPattern
    from relaxpy.tvm.lowering.call_tir_rewrite import CallTIRRewrite as CallTIRRewrite, DataflowUseInplaceCalls as DataflowUseInplaceCalls, LowerRuntimeBuiltin as LowerRuntimeBuiltin, SpecializePrimFuncBasedOnCallSite as SpecializePrimFuncBasedOnCallSite, VMBuiltinLower as VMBuiltinLower
    from relaxpy.tvm.lowering.rewrite_cuda_graph import RewriteCUDAGraph as RewriteCUDAGraph
    from relaxpy.tvm.lowering.static_plan_block_memory import AllocateWorkspace as AllocateWorkspace, KillAfterLastUse as KillAfterLastUse, LowerAllocTensor as LowerAllocTensor, StaticPlanBlockMemory as StaticPlanBlockMemory
    from relaxpy.tvm.lowering.vm_shape_lower import VMShapeLower as VMShapeLower
    __all__ = ['AdjustMatmulOrder', 'AllocateWorkspace', 'AlterOpImpl', 'AnnotateTIROpPattern', 'AppendInPlace', 'AttachAttrLayoutFreeBuffers', 'AttachExternModules', 'AttachGlobalSymbol', 'BindParams', 'BindSymbolicVars', 'BindingRewriter', 'Bisection', 'BundleModelParams', 'CallTIRRewrite', 'CanonicalizeBindings', 'CombineParallelMatmul', 'ComputePrimValue', 'ConvertLayout', 'ConvertToDataflow', 'DataflowBlockPass', 'DataflowUseInplaceCalls', 'DeadCodeElimination', 'DecomposeOpsForInference', 'DecomposeOpsForTraining', 'EliminateCommonSubexpr', 'ExpandMatmulOfSum', 'ExpandTupleArguments', 'Explanation', 'FoldBatchnormToConv2D', 'FoldConstant', 'FoldViews', 'FunctionPass', 'FuseOps', 'FuseOpsByPattern', 'FuseTIR', 'FuseTransposeMatmul', 'FusionPattern', 'Gradient', 'IPCAllReduceRewrite', 'InlinePrivateFunctions', 'KillAfterLastUse', 'LambdaLift', 'LazyGetInput', 'LazySetOutput', 'LazyTransformParams', 'LegalizeOps', 'LiftTransformParams', 'LowerAllocTensor', 'LowerGPUIPCAllocStorage', 'LowerRuntimeBuiltin', 'MergeCompositeFunctions', 'Normalize', 'NormalizeGlobalVar', 'OptimizeLayoutTransform', 'PatternCheckContext', 'QuantizeWeights', 'RealizeVDevice', 'RemovePurityChecking', 'RemoveRedundantReshape', 'RemoveUnusedKernelOutputs', 'RemoveUnusedOutputs', 'RemoveUnusedParameters', 'ReorderPermuteDimsAfterConcat', 'ReorderTakeAfterMatmul', 'RewriteCUDAGraph', 'RewriteDataflowReshape', 'RunCodegen', 'ShareSums', 'SpecializePrimFuncBasedOnCallSite', 'SplitCallTIRByPattern', 'SplitLayoutRewritePreproc', 'StaticPlanBlockMemory', 'ToMixedPrecision', 'ToNonDataflow', 'TopologicalSort', 'UpdateParamStructInfo', 'UpdateParamType', 'UpdateVDevice', 'VMBuiltinLower', 'VMShapeLower', 'bisect', 'dataflowblock_pass', 'explain', 'function_pass', 'fusion_pays', 'legalize_ops', 'map_bindings', 'transform']
