"""Generated programs do after each pass what they did before it, on both targets.

Each day other programs are drawn; `RELAXPY_FUZZ_SEED` and `RELAXPY_FUZZ_COUNT` choose them.
"""

import random
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relaxpy import IRModule, te, tir, topi
from relaxpy.errors import RelaxpyWarning
from relaxpy.ir import structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.relax import backend, get_default_pipeline, get_pipeline, transform
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.tir import PrimFunc
from tests.fuzz.graphs import run, write
from tests.fuzz.seed import COUNT, SEED


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
    "AttachExternModules": transform.AttachExternModules([{"tests.preserve.unused": abs}]),
    "AttachGlobalSymbol": transform.AttachGlobalSymbol(),
    "CallTIRRewrite": explicit,
    "CombineParallelMatmul": lambda mod: transform.CombineParallelMatmul()(in_dataflow(mod)),
    "DispatchSampling": backend.DispatchSampling(),
    "DispatchSortScan": backend.DispatchSortScan(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "FastMathTransform": transform.FastMathTransform(),
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
NOT_IDEMPOTENT: Mapping[str, str] = {
    "DataflowUseInplaceCalls": "as ConvertToDataflow(1)",
    "MergeCompositeFunctions": "as ConvertToDataflow(1)",
    "FuseOpsByPattern": "as ConvertToDataflow(1)",
    "FoldViews": "as ConvertToDataflow(1)",
    "RemoveUnusedKernelOutputs": "as ConvertToDataflow(1)",
    "FuseOps": "as ConvertToDataflow(1)",
    "AllocateWorkspace": "as ConvertToDataflow(1)",
    "CombineParallelMatmul": "as ConvertToDataflow(1)",
    "FuseTransposeMatmul": "as ConvertToDataflow(1)",
    "FuseOps(rule)": "as FuseTIR",
    "default": "as FuseTIR",
    "VMShapeLower": "each run allocates memory for dimensions",
    "default_build": "as VMShapeLower",
    "get_default_pipeline": "as VMShapeLower",
    "zero": "as FuseTIR",
    "SplitCallTIRByPattern": "as FuseTIR",
    "FuseTIR": "kernels that resulted from fusion are annotated, and can be fused again",
    "RewriteDataflowReshape": "the reshapes are legalised again",
    "CanonicalizeBindings": "constants that aliases kept are moved to their uses",
    "ConvertToDataflow": "as CanonicalizeBindings",
    "ConvertToDataflow(1)": "as CanonicalizeBindings",
}
"""Passes that a second run may change again, with the reason."""
PROGRAMS = -(-COUNT // 34)
TARGETS = ("numpy", "reference")


def checked(step: Callable[[IRModule], IRModule], before: IRModule, *, again: bool) -> IRModule:
    """The module after a pass, with what every pass promises checked."""
    hash_before = structural_hash(before)
    after = step(before)
    assert structural_hash(before) == hash_before, "the module itself was changed"
    if after is not before:
        assert check_well_formed(after, normal_form=True) == []
        assert results_of(before).keys() <= results_of(after).keys()
        for name, sinfo in results_of(before).items():
            assert is_base_of(sinfo, results_of(after)[name]), name
    if again:
        assert step(after) is after, "a second run changes the module again"
    return after


def results_of(mod: IRModule) -> dict[str, rx.StructInfo]:
    """The struct info of the results of public functions."""
    return {
        name: func.struct_info.ret
        for name, func in mod.functions_by_name.items()
        if isinstance(func, rx.Function)
        and "global_symbol" in func.attrs
        and isinstance(func.struct_info, rx.FuncStructInfo)
    }


@pytest.mark.rule("OPT-1", "OPT-2")
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_changes_no_program(name: str, tmp_path: Path) -> None:
    for k in range(PROGRAMS):
        seed = f"{SEED}.{name}.{k}"
        step = partial(checked, PASSES[name], again=name not in NOT_IDEMPOTENT)
        preserve(seed, step, tmp_path)


def test_passes_in_any_order_change_no_program(tmp_path: Path) -> None:
    for k in range(2 * PROGRAMS):
        seed = f"{SEED}.{k}"
        rng = random.Random(seed)
        names = [rng.choice(sorted(PASSES)) for _ in range(6)]
        step = partial(checked, lambda mod, names=names: chain(names, mod), again=False)
        try:
            preserve(seed, step, tmp_path)
        except BaseException as error:
            error.add_note(f"passes {names}")
            raise


def chain(names: list[str], mod: IRModule) -> IRModule:
    for name in names:
        mod = PASSES[name](mod)
    return mod


def preserve(seed: str, step: Callable[[IRModule], IRModule], folder: Path) -> None:
    program = write(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RelaxpyWarning)
            run(program, seed, folder, TARGETS, step)
    except BaseException as error:
        error.add_note(f"seed {seed}\n{program.relax}\n{program.python}")
        raise
