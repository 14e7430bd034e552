"""The passes, with those that each needs before it, which tests of what passes keep run over."""

from collections.abc import Callable

import numpy as np

from relaxpy import IRModule, te, tir, topi
from relaxpy.relax import backend, get_default_pipeline, get_pipeline, transform
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.tir import PrimFunc

Step = Callable[[IRModule], IRModule]


def explicit(mod: IRModule) -> IRModule:
    """A module whose calls of kernels allocate their outputs explicitly."""
    legal = transform.ToNonDataflow()(transform.LegalizeOps()(mod))
    return transform.CallTIRRewrite()(transform.RemovePurityChecking()(legal))


def in_dataflow(mod: IRModule) -> IRModule:
    """A module with as many bindings in dataflow blocks as possible."""
    return transform.ConvertToDataflow(min_size=1)(mod)


def with_workspaces(mod: IRModule) -> IRModule:
    """A module some of whose functions are for a back end that needs memory."""
    mod = transform.FuseOpsByPattern(PATTERNS, annotate_codegen=True)(in_dataflow(mod))
    after = mod.clone()
    for var, func in mod.items():
        if "Codegen" in func.attrs:
            after[var] = func.with_attr("WorkspaceSize", len(var.name_hint))
    return after


def annotated(mod: IRModule) -> IRModule:
    """A module whose kernels say how they can be fused."""
    return transform.AnnotateTIROpPattern()(transform.LegalizeOps()(in_dataflow(mod)))


PATTERNS = [
    (f"{backend}.{name}", is_op(f"relax.{name}")(*[wildcard()] * count))
    for backend, name, count in (
        ("one", "add", 2),
        ("two", "subtract", 2),
        ("one", "multiply", 2),
        ("two", "abs", 1),
        ("one", "exp", 1),
        ("two", "sum", 1),
        ("one", "permute_dims", 1),
    )
]


def negations(rank: int, dtype: str) -> PrimFunc:
    """The kernel of `negative` for any dimensions."""
    x = te.placeholder([tir.Var(f"n{axis}", "int64") for axis in range(rank)], dtype, "x")
    return te.create_prim_func([x, topi.negative(x)])


def split(mod: IRModule) -> IRModule:
    """Fused kernels, of which NumPy computes `negative` if that is their first step."""
    fused = transform.FuseTIR()(transform.FuseOps()(annotated(mod)))
    dtypes = ("float16", "bfloat16", "float32", "int32")
    patterns = [negations(rank, dtype) for rank in range(1, 4) for dtype in dtypes]
    return transform.SplitCallTIRByPattern(
        patterns, lambda matches: [np.negative, 1, [matches[0].matched_buffers[0]]]
    )(fused)


PASSES: dict[str, Callable[[IRModule], IRModule]] = {
    "AllocateWorkspace": lambda mod: transform.AllocateWorkspace()(with_workspaces(mod)),
    "AnnotateTIROpPattern": lambda mod: transform.AnnotateTIROpPattern()(
        transform.LegalizeOps()(mod)
    ),
    "AppendInPlace": transform.AppendInPlace(),
    "AttachExternModules": transform.AttachExternModules([{"tests.preserve.unused": abs}]),
    "AttachGlobalSymbol": transform.AttachGlobalSymbol(),
    "CallTIRRewrite": explicit,
    "CombineParallelMatmul": lambda mod: transform.CombineParallelMatmul()(in_dataflow(mod)),
    "DispatchSampling": backend.DispatchSampling(),
    "DispatchSortScan": backend.DispatchSortScan(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "FoldConstant": transform.FoldConstant(),
    "FoldConstant(legal)": lambda mod: transform.FoldConstant()(transform.LegalizeOps()(mod)),
    "FoldViews": lambda mod: transform.FoldViews()(transform.LegalizeOps()(in_dataflow(mod))),
    "FuseOps": lambda mod: transform.FuseOps()(annotated(mod)),
    "FuseOpsByPattern": lambda mod: transform.FuseOpsByPattern(PATTERNS)(in_dataflow(mod)),
    "FuseOpsByPattern(codegen)": transform.FuseOpsByPattern(
        PATTERNS, bind_constants=False, annotate_codegen=True
    ),
    "FuseOps(rule)": lambda mod: transform.FuseTIR()(
        transform.FuseOps(rule=lambda producer, consumer: True)(annotated(mod))
    ),
    "FuseTIR": lambda mod: transform.FuseTIR()(transform.FuseOps()(annotated(mod))),
    "FuseTransposeMatmul": lambda mod: transform.FuseTransposeMatmul()(in_dataflow(mod)),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "RemovePurityChecking": lambda mod: transform.RemovePurityChecking()(
        transform.ToNonDataflow()(mod)
    ),
    "RemoveRedundantReshape": transform.RemoveRedundantReshape(),
    "RemoveUnusedKernelOutputs": lambda mod: transform.RemoveUnusedKernelOutputs()(
        transform.LegalizeOps()(mod)
    ),
    "RemoveUnusedOutputs": transform.RemoveUnusedOutputs(),
    "RemoveUnusedParameters": transform.RemoveUnusedParameters(),
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "ComputePrimValue": lambda mod: transform.ComputePrimValue()(
        transform.RemovePurityChecking()(transform.ToNonDataflow()(mod))
    ),
    "ConvertToDataflow": transform.ConvertToDataflow(),
    "ConvertToDataflow(1)": transform.ConvertToDataflow(min_size=1),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "EliminateCommonSubexpr(call_only)": transform.EliminateCommonSubexpr(call_only=True),
    "LambdaLift": transform.LambdaLift(),
    "DataflowUseInplaceCalls": lambda mod: transform.DataflowUseInplaceCalls()(in_dataflow(mod)),
    "KillAfterLastUse": lambda mod: transform.KillAfterLastUse()(
        transform.LowerAllocTensor()(explicit(mod))
    ),
    "LegalizeOps": transform.LegalizeOps(),
    "LowerAllocTensor": lambda mod: transform.LowerAllocTensor()(explicit(mod)),
    "MergeCompositeFunctions": lambda mod: transform.MergeCompositeFunctions()(
        transform.FuseOpsByPattern(PATTERNS)(in_dataflow(mod))
    ),
    "LowerRuntimeBuiltin": lambda mod: transform.LowerRuntimeBuiltin()(
        transform.LowerAllocTensor()(explicit(mod))
    ),
    "Normalize": transform.Normalize(),
    "RewriteDataflowReshape": lambda mod: transform.RewriteDataflowReshape()(
        transform.LegalizeOps()(mod)
    ),
    "SplitCallTIRByPattern": split,
    "StaticPlanBlockMemory": lambda mod: transform.StaticPlanBlockMemory()(explicit(mod)),
    "ToNonDataflow": transform.ToNonDataflow(),
    "VMShapeLower": lambda mod: transform.VMShapeLower()(
        transform.LowerRuntimeBuiltin()(transform.LowerAllocTensor()(explicit(mod)))
    ),
    "default": get_pipeline("default"),
    "default_build": get_pipeline("default_build"),
    "get_default_pipeline": get_default_pipeline("llvm"),
    "zero": get_pipeline("zero"),
    "TopologicalSort(breadth)": transform.TopologicalSort("breadth-first"),
    "TopologicalSort(depth)": transform.TopologicalSort(),
    "TopologicalSort(outputs)": transform.TopologicalSort(direction="from-outputs"),
}
"""Passes that keep the value and the effects of `main`; some need others before them."""
_SIMPLE = (
    *("AdjustMatmulOrder", "AttachAttrLayoutFreeBuffers", "BundleModelParams"),
    *("DecomposeOpsForInference", "DecomposeOpsForTraining", "ExpandMatmulOfSum"),
    *("FoldBatchnormToConv2D", "LowerGPUIPCAllocStorage", "NormalizeGlobalVar"),
    *("OptimizeLayoutTransform", "RealizeVDevice", "ReorderPermuteDimsAfterConcat"),
    *("ReorderTakeAfterMatmul", "ShareSums", "ToMixedPrecision"),
)


def in_blocks(step: Step) -> Step:
    return lambda mod: step(in_dataflow(mod))


ROWS: dict[str, Step] = {
    **PASSES,
    **{name: in_blocks(getattr(transform, name)()) for name in _SIMPLE},
    "ConvertLayout": in_blocks(transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})),
    "RewriteCUDAGraph": lambda mod: transform.RewriteCUDAGraph()(
        transform.StaticPlanBlockMemory()(explicit(mod))
    ),
    "RunCodegen": transform.RunCodegen(),
    "SpecializePrimFuncBasedOnCallSite": lambda mod: transform.SpecializePrimFuncBasedOnCallSite()(
        transform.LegalizeOps()(mod)
    ),
    "SplitLayoutRewritePreproc": lambda mod: transform.SplitLayoutRewritePreproc()(
        transform.LegalizeOps()(mod)
    ),
}
#: Passes after which sums and products are computed in another order, or by NumPy.
REORDERING = frozenset(
    (
        *("AdjustMatmulOrder", "CombineParallelMatmul", "ExpandMatmulOfSum", "FoldConstant"),
        *("ReorderPermuteDimsAfterConcat", "ReorderTakeAfterMatmul", "ShareSums"),
        *("OptimizeLayoutTransform", "SpecializePrimFuncBasedOnCallSite"),
        *("SplitLayoutRewritePreproc", "RewriteCUDAGraph"),
        *("default", "default_build", "get_default_pipeline", "zero"),
    )
)
#: Passes that compute by other operators, with the datatype in which they round if it is another.
REWRITING: dict[str, str | None] = {
    **dict.fromkeys(("DecomposeOpsForInference", "DecomposeOpsForTraining"), None),
    "FoldBatchnormToConv2D": None,
    "ToMixedPrecision": "float16",
}
