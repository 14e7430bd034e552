"""Eight times the bindings are at most about eight times the work of a pass."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from relaxpy import IRModule
from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import te_call
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.relax import backend, transform
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.relax.transform import Normalize
from tests.counting import calls
from tests.ir.passes.program_shapes import SHAPES
from tests.ir.relax.sinfos import rank, tensor
from tests.rows import table

SQUARE = tensor(4, 4)


def same(mod: IRModule) -> IRModule:
    return mod


def annotated(mod: IRModule) -> IRModule:
    """The module whose kernels say how they can be fused."""
    legal = transform.LegalizeOps()(transform.ConvertToDataflow(min_size=1)(mod))
    return transform.AnnotateTIROpPattern()(legal)


def fused(mod: IRModule) -> IRModule:
    return transform.FuseOps()(annotated(mod))


def with_memory(mod: IRModule) -> IRModule:
    """The module whose kernels write into tensors that are allocated explicitly."""
    legal = transform.LegalizeOps()(transform.ToNonDataflow()(mod))
    return transform.CallTIRRewrite()(transform.RemovePurityChecking()(legal))


def matched(mod: IRModule) -> IRModule:
    """The module with what patterns match in functions for a back end."""
    return FUSE_BY_PATTERN(transform.ConvertToDataflow(min_size=1)(mod))


FUSE_BY_PATTERN = transform.FuseOpsByPattern(
    [
        (f"mine.{name}", is_op(f"relax.{name}")(*[wildcard()] * count))
        for name, count in (("add", 2), ("exp", 1), ("matmul", 2))
    ]
)


def for_a_back_end(mod: IRModule) -> IRModule:
    """The module whose functions are for a back end, and need a workspace each."""
    attrs = {"Codegen": "example", "WorkspaceSize": 64}
    functions = {v.name_hint: f for v, f in mod.items()}
    return IRModule({n: f if n == "main" else f.with_attrs(attrs) for n, f in functions.items()})


def split_first(mod: IRModule) -> IRModule:
    """The module whose kernels are compared with the first of them."""

    def computed(matches: list[Any]) -> list[Any]:
        return [lambda x: x, 1, [matches[0].matched_buffers[0]]]

    pattern = next(f for f in mod.functions.values() if isinstance(f, PrimFunc))
    return transform.SplitCallTIRByPattern([pattern], computed)(mod)


Step: TypeAlias = Callable[[IRModule], IRModule]
#: The shapes of programs that are hard for a pass.
_SHAPES = table("""
AdjustMatmulOrder : squares products
BundleModelParams : parameters weights
CallTIRRewrite : chain parameters
CanonicalizeBindings : casts one_tuple aliases mixed mixed_in_dataflow
CombineParallelMatmul : parallel_products scans_in_dataflow
ConvertToDataflow : effects blocks mixed mixed_in_dataflow
DeadCodeElimination : diamonds calls_of_calls mixed mixed_in_dataflow closures
DecomposeOpsForInference : statistics
DecomposeOpsForTraining : statistics
EliminateCommonSubexpr : fan fan_of_constants mixed mixed_in_dataflow
ExpandMatmulOfSum : fibonacci fibonacci_in_dataflow
FoldConstant : fold_in_dataflow mixed mixed_in_dataflow
FuseOps : diamonds outputs parameters
FuseOpsByPattern : fibonacci_in_dataflow outputs
FuseTIR : concatenation chain fan
InlinePrivateFunctions : one_function closures
KillAfterLastUse : fan parameters mixed
LambdaLift : local_functions closures
LazyGetInput : parameters weights
LazySetOutput : outputs
LegalizeOps : chain concatenation fan_of_constants
LiftTransformParams : parameters weights
LowerRuntimeBuiltin : chain
MergeCompositeFunctions : fibonacci diamonds functions
RemoveRedundantReshape : reshapes mixed mixed_in_dataflow
RemoveUnusedOutputs : one_function closures
RemoveUnusedParameters : calls_of_calls closures
ReorderPermuteDimsAfterConcat : concatenation transpositions
StaticPlanBlockMemory : fan outputs mixed
ToMixedPrecision : products_in_dataflow
ToNonDataflow : outputs blocks mixed mixed_in_dataflow
TopologicalSort : fan_in_dataflow mixed mixed_in_dataflow
VMShapeLower : casts conditionals
AllocateWorkspace : closures
AttachExternModules : closures
AttachGlobalSymbol : closures
ConvertLayout : images
DataflowUseInplaceCalls : mixed_in_dataflow scans_in_dataflow
DispatchSampling : scans_in_dataflow
DispatchSortScan : scans_in_dataflow
ExpandTupleArguments : closures
FoldBatchnormToConv2D : images
FuseTransposeMatmul : scans_in_dataflow
LiftTransformParams of all : weights
LowerAllocTensor : mixed
RemovePurityChecking : mixed mixed_in_dataflow
RewriteDataflowReshape : mixed mixed_in_dataflow
SplitCallTIRByPattern : fan_of_constants
UpdateParamStructInfo : mixed mixed_in_dataflow
""")
#: What comes before a pass, if anything does.
_BEFORE: dict[str, Step] = {
    "CallTIRRewrite": lambda mod: transform.RemovePurityChecking()(
        transform.LegalizeOps()(transform.ToNonDataflow()(mod))
    ),
    "FuseOps": annotated,
    "FuseTIR": fused,
    "KillAfterLastUse": with_memory,
    "LowerRuntimeBuiltin": lambda mod: transform.LowerAllocTensor()(with_memory(mod)),
    "MergeCompositeFunctions": matched,
    "StaticPlanBlockMemory": with_memory,
    "VMShapeLower": with_memory,
    "AllocateWorkspace": for_a_back_end,
    "LowerAllocTensor": with_memory,
    "SplitCallTIRByPattern": transform.LegalizeOps(),
}
#: Passes that are not those of their names without options.
_STEPS: dict[str, Step] = {
    "FuseOpsByPattern": FUSE_BY_PATTERN,
    "TopologicalSort": transform.TopologicalSort("breadth-first"),
    "AttachExternModules": transform.AttachExternModules([{"tests.growth.unused": abs}]),
    "ConvertLayout": transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    "DispatchSampling": backend.DispatchSampling(),
    "DispatchSortScan": backend.DispatchSortScan(),
    "LiftTransformParams of all": transform.LiftTransformParams(True),
    "SplitCallTIRByPattern": split_first,
    "UpdateParamStructInfo": transform.UpdateParamStructInfo(lambda _: rank(2)),
}
#: The passes with what comes before them, and the shapes of programs that are hard for them.
HARD: dict[str, tuple[Step, Step, str]] = {
    name: (_BEFORE.get(name, same), _STEPS.get(name) or getattr(transform, name)(), shapes)
    for name, shapes in _SHAPES
}
CASES = [(name, shape) for name, (_, _, shapes) in HARD.items() for shape in shapes.split()]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_work_grows_linearly_with_hard_programs(name: str, shape: str) -> None:
    prepare, step, _ = HARD[name]
    first, small, large = (prepare(SHAPES[shape](count)) for count in (19, 20, 160))
    step(first)  # what is computed once for all programs
    work = []
    for mod in (small, large):
        te_call._kept.cache_clear()  # the kernels of `first`, of which `small` has most
        work.append(calls(lambda mod=mod: step(mod)))
    few, many = work
    # On the smallest of the other programs, a few bindings more or less count.
    assert many <= (1.1 if shape in ("chain", "fan", "images", "weights") else 1.3) * 8 * few


def nested(depth: int) -> IRModule:
    """Local functions in each other, the innermost of which uses a parameter of the outermost."""
    x = rx.Var("x", SQUARE)
    value: rx.Expr = op.add(x, x)
    for k in range(depth):
        param, name = rx.Var(f"p{k}", SQUARE), rx.Var(f"f{k}")
        inner = rx.Function([param], rx.SeqExpr([], value), SQUARE)
        block = rx.BindingBlock((rx.VarBinding(name, inner),))
        value = rx.SeqExpr((block,), rx.Call(name, (x,)))
    return Normalize()(IRModule({"main": rx.Function([x], value, SQUARE)}))


#: The passes that are tried on functions in functions: those of bindings and of functions.
OF_NESTED = sorted(
    name
    for name, (prepare, _, shapes) in HARD.items()
    if {"mixed", "closures"} & set(shapes.split()) and prepare is same
    if name not in ("AttachExternModules", "UpdateParamStructInfo")
)


@pytest.mark.parametrize("name", OF_NESTED)
def test_work_on_functions_in_functions_is_at_most_quadratic(name: str) -> None:
    _, step, _ = HARD[name]
    step(nested(3))
    shallow, deep = nested(12), nested(24)
    assert calls(lambda: step(deep)) <= 4.5 * calls(lambda: step(shallow))
