"""The passes over Relax programs."""

from relaxpy.ir.relax.dpl.fusion import (
    FusionPattern as FusionPattern,
    PatternCheckContext as PatternCheckContext,
)
from relaxpy.ir.relax.transform import (
    AlterOpImpl as AlterOpImpl,
    BindingRewriter as BindingRewriter,
    BindParams as BindParams,
    BindSymbolicVars as BindSymbolicVars,
    CanonicalizeBindings as CanonicalizeBindings,
    ConvertLayout as ConvertLayout,
    ConvertToDataflow as ConvertToDataflow,
    DataflowBlockPass as DataflowBlockPass,
    DeadCodeElimination as DeadCodeElimination,
    EliminateCommonSubexpr as EliminateCommonSubexpr,
    FoldBatchnormToConv2D as FoldBatchnormToConv2D,
    FunctionPass as FunctionPass,
    Gradient as Gradient,
    LegalizeOps as LegalizeOps,
    Normalize as Normalize,
    NormalizeGlobalVar as NormalizeGlobalVar,
    OptimizeLayoutTransform as OptimizeLayoutTransform,
    ToNonDataflow as ToNonDataflow,
    TopologicalSort as TopologicalSort,
    dataflowblock_pass as dataflowblock_pass,
    function_pass as function_pass,
    map_bindings as map_bindings,
)
