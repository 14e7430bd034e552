"""Ten times the bindings are at most about ten times the work of a pass."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from relaxpy import IRModule
from relaxpy.ir import load_json, save_json
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.relax import backend, transform
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.relax.transform import Normalize
from tests.counting import calls
from tests.ir.relax.sinfos import rank, tensor
from tests.ir.relax.transform.program_shapes import SHAPES

SMALL, LARGE = 40, 400
SQUARE = tensor(4, 4)


def body(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """So many bindings: chains, aliases, equal calls, tuples, casts, constants, and unused ones."""
    value, first = x, x
    for k in range(count // 10):
        one = builder.emit(op.exp(value))
        other = builder.emit(op.exp(value))
        alias = builder.emit(one)
        pair = builder.emit(rx.Tuple((alias, other)))
        field = builder.emit(rx.TupleGetItem(pair, 1))
        cast = builder.match_cast(field, SQUARE)
        constant = builder.emit(rx.const(float(k), "float32"))
        total = builder.emit(op.add(cast, constant))
        builder.emit(op.abs(total))
        flat = builder.emit(op.reshape(total, (16,)))
        value = builder.emit(op.reshape(flat, (4, 4)))
    return builder.emit_output(value) if builder.current_block_is_dataflow() else value


@cache
def program(count: int, dataflow: bool) -> IRModule:
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        if dataflow:
            with builder.dataflow():
                result = body(builder, x, count)
        else:
            result = body(builder, x, count)
        builder.emit_func_output(result)
    return Normalize()(builder.finalize())


@cache
def functions(count: int) -> IRModule:
    """Private functions with local functions, each called once by `main`."""
    builder = BlockBuilder()
    names = []
    pair = rx.TupleStructInfo((SQUARE, SQUARE))
    for _ in range(count // 10):
        p, unused, y = rx.Var("p", pair), rx.Var("u", SQUARE), rx.Var("y", SQUARE)
        with builder.function("f", [p, unused], private=True):
            z = builder.emit(rx.TupleGetItem(p, 0))
            inner = rx.Function([y], rx.SeqExpr([], op.add(y, z)), SQUARE)
            local = builder.emit(inner)
            w = builder.emit(rx.Call(local, (z,)))
            names.append(builder.emit_func_output(rx.Tuple((w, z))))
    x = rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        value = x
        for name in names:
            result = builder.emit(rx.Call(name, (rx.Tuple((value, x)), x)))
            value = builder.emit(rx.TupleGetItem(result, 0))
        builder.emit_func_output(value)
    return Normalize()(builder.finalize())


OF_BINDINGS: dict[str, Callable[[IRModule], IRModule]] = {
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "ConvertToDataflow": transform.ConvertToDataflow(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "FoldConstant": transform.FoldConstant(),
    "RemovePurityChecking": transform.RemovePurityChecking(),
    "RemoveRedundantReshape": transform.RemoveRedundantReshape(),
    "RewriteDataflowReshape": transform.RewriteDataflowReshape(),
    "ToNonDataflow": transform.ToNonDataflow(),
    "TopologicalSort": transform.TopologicalSort(),
    "UpdateParamStructInfo": transform.UpdateParamStructInfo(lambda _: rank(2)),
}
#: Passes over programs of products of matrices.
OF_PRODUCTS: dict[str, Callable[[IRModule], IRModule]] = {
    "CombineParallelMatmul": transform.CombineParallelMatmul(),
    "DispatchSampling": backend.DispatchSampling(),
    "DispatchSortScan": backend.DispatchSortScan(),
    "FastMathTransform": transform.FastMathTransform(),
    "FuseTransposeMatmul": transform.FuseTransposeMatmul(),
}
#: Passes over programs whose memory is explicit.
OF_ALLOCATIONS: dict[str, Callable[[IRModule], IRModule]] = {
    "DataflowUseInplaceCalls": transform.DataflowUseInplaceCalls(),
    "KillAfterLastUse": transform.KillAfterLastUse(),
    "LowerAllocTensor": transform.LowerAllocTensor(),
    "StaticPlanBlockMemory": transform.StaticPlanBlockMemory(),
}
OF_FUNCTIONS: dict[str, Callable[[IRModule], IRModule]] = {
    "AttachExternModules": transform.AttachExternModules([{"tests.growth.unused": abs}]),
    "AttachGlobalSymbol": transform.AttachGlobalSymbol(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "LambdaLift": transform.LambdaLift(),
    "RemoveUnusedOutputs": transform.RemoveUnusedOutputs(),
    "RemoveUnusedParameters": transform.RemoveUnusedParameters(),
}


def check_growth(step: Callable[[IRModule], IRModule], small: IRModule, large: IRModule) -> None:
    # What is computed once for all programs, by a copy whose nodes nothing is remembered of yet.
    step(load_json(save_json(small)))
    few, many = (calls(lambda mod=mod: step(mod)) for mod in (small, large))
    assert many <= 1.3 * LARGE / SMALL * few


@pytest.mark.parametrize("dataflow", [False, True])
@pytest.mark.parametrize("name", OF_BINDINGS)
def test_work_grows_with_the_bindings(name: str, dataflow: bool) -> None:
    check_growth(OF_BINDINGS[name], program(SMALL, dataflow), program(LARGE, dataflow))


@cache
def products(count: int) -> IRModule:
    """So many bindings: products of a matrix with two others, one transposed, and scans."""
    builder, x, w = BlockBuilder(), rx.Var("x", SQUARE), rx.Var("w", SQUARE)
    with builder.function("main", [x, w]):
        value: rx.Expr = x
        with builder.dataflow():
            for _ in range(count // 6):
                one = builder.emit(op.matmul(value, w))
                turned = builder.emit(op.permute_dims(w))
                other = builder.emit(op.matmul(value, turned))
                total = builder.emit(op.add(one, other))
                power = builder.emit(op.exp(total))
                value = builder.emit(op.cumsum(power, 0))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return Normalize()(builder.finalize())


@pytest.mark.parametrize("name", OF_PRODUCTS)
def test_work_grows_with_the_products(name: str) -> None:
    check_growth(OF_PRODUCTS[name], products(SMALL), products(LARGE))


@cache
def kernels(count: int) -> IRModule:
    """So many calls, each of a kernel of its own."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        value: rx.Expr = x
        for k in range(count // 4):
            value = builder.emit(op.add(value, rx.const(float(k), "float32")))
        builder.emit_func_output(value)
    return transform.LegalizeOps()(builder.finalize())


def test_work_grows_with_the_kernels_that_are_compared_with_a_pattern() -> None:
    pattern = next(f for n, f in kernels(SMALL).functions_by_name.items() if n != "main")

    def computed(matches: list[Any]) -> list[Any]:
        return [lambda x: x, 1, [matches[0].matched_buffers[0]]]

    step = transform.SplitCallTIRByPattern([pattern], computed)
    check_growth(step, kernels(SMALL), kernels(LARGE))


@cache
def for_a_back_end(count: int) -> IRModule:
    """The functions for a back end, each of which needs a workspace."""
    mod = functions(count).clone()
    for var, func in functions(count).items():
        if var.name_hint != "main":
            assert isinstance(func, rx.Function)
            mod[var] = func.with_attrs({"Codegen": "example", "WorkspaceSize": 64})
    return mod


def test_work_grows_with_the_functions_that_need_a_workspace() -> None:
    check_growth(transform.AllocateWorkspace(), for_a_back_end(SMALL), for_a_back_end(LARGE))


@cache
def explicit(count: int) -> IRModule:
    """The program with kernels that write into allocated tensors."""
    mod = transform.RemovePurityChecking()(transform.LegalizeOps()(program(count, dataflow=False)))
    return Normalize()(transform.CallTIRRewrite()(mod))


@pytest.mark.parametrize("name", OF_ALLOCATIONS)
def test_work_grows_with_the_allocations(name: str) -> None:
    check_growth(OF_ALLOCATIONS[name], explicit(SMALL), explicit(LARGE))


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_work_grows_with_the_functions(name: str) -> None:
    check_growth(OF_FUNCTIONS[name], functions(SMALL), functions(LARGE))


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
#: The passes with what comes before them, and the shapes of programs that are hard for them.
HARD: dict[str, tuple[Callable[[IRModule], IRModule], Callable[[IRModule], IRModule], str]] = {
    "AdjustMatmulOrder": (same, transform.AdjustMatmulOrder(), "squares products"),
    "BundleModelParams": (same, transform.BundleModelParams(), "parameters"),
    "CallTIRRewrite": (
        lambda mod: transform.RemovePurityChecking()(
            transform.LegalizeOps()(transform.ToNonDataflow()(mod))
        ),
        transform.CallTIRRewrite(),
        "chain parameters",
    ),
    "CanonicalizeBindings": (same, transform.CanonicalizeBindings(), "casts one_tuple aliases"),
    "CombineParallelMatmul": (same, transform.CombineParallelMatmul(), "parallel_products"),
    "ConvertToDataflow": (same, transform.ConvertToDataflow(), "effects blocks"),
    "DeadCodeElimination": (same, transform.DeadCodeElimination(), "diamonds calls_of_calls"),
    "DecomposeOpsForInference": (same, transform.DecomposeOpsForInference(), "statistics"),
    "DecomposeOpsForTraining": (same, transform.DecomposeOpsForTraining(), "statistics"),
    "EliminateCommonSubexpr": (same, transform.EliminateCommonSubexpr(), "fan fan_of_constants"),
    "ExpandMatmulOfSum": (same, transform.ExpandMatmulOfSum(), "fibonacci fibonacci_in_dataflow"),
    "FoldConstant": (same, transform.FoldConstant(), "fold_in_dataflow"),
    "FuseOps": (annotated, transform.FuseOps(), "diamonds outputs parameters"),
    "FuseOpsByPattern": (same, FUSE_BY_PATTERN, "fibonacci_in_dataflow outputs"),
    "FuseTIR": (fused, transform.FuseTIR(), "concatenation"),
    "InlinePrivateFunctions": (same, transform.InlinePrivateFunctions(), "one_function"),
    "KillAfterLastUse": (with_memory, transform.KillAfterLastUse(), "fan parameters"),
    "LambdaLift": (same, transform.LambdaLift(), "local_functions"),
    "LazyGetInput": (same, transform.LazyGetInput(), "parameters"),
    "LazySetOutput": (same, transform.LazySetOutput(), "outputs"),
    "LegalizeOps": (same, transform.LegalizeOps(), "concatenation fan_of_constants"),
    "LiftTransformParams": (same, transform.LiftTransformParams(), "parameters"),
    "LowerRuntimeBuiltin": (
        lambda mod: transform.LowerAllocTensor()(with_memory(mod)),
        transform.LowerRuntimeBuiltin(),
        "chain",
    ),
    "MergeCompositeFunctions": (
        matched,
        transform.MergeCompositeFunctions(),
        "fibonacci diamonds functions",
    ),
    "RemoveRedundantReshape": (same, transform.RemoveRedundantReshape(), "reshapes"),
    "RemoveUnusedOutputs": (same, transform.RemoveUnusedOutputs(), "one_function"),
    "RemoveUnusedParameters": (same, transform.RemoveUnusedParameters(), "calls_of_calls"),
    "ReorderPermuteDimsAfterConcat": (
        same,
        transform.ReorderPermuteDimsAfterConcat(),
        "concatenation transpositions",
    ),
    "StaticPlanBlockMemory": (with_memory, transform.StaticPlanBlockMemory(), "fan outputs"),
    "ToMixedPrecision": (same, transform.ToMixedPrecision(), "products_in_dataflow"),
    "ToNonDataflow": (same, transform.ToNonDataflow(), "outputs blocks"),
    "TopologicalSort": (same, transform.TopologicalSort("breadth-first"), "fan_in_dataflow"),
    "VMShapeLower": (with_memory, transform.VMShapeLower(), "casts conditionals"),
}
CASES = [(name, shape) for name, (_, _, shapes) in HARD.items() for shape in shapes.split()]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_work_grows_linearly_with_hard_programs(name: str, shape: str) -> None:
    prepare, step, _ = HARD[name]
    first, small, large = (prepare(SHAPES[shape](count)) for count in (19, 20, 160))
    step(first)  # what is computed once for all programs
    few, many = (calls(lambda mod=mod: step(mod)) for mod in (small, large))
    assert many <= 1.3 * 8 * few


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


OF_NESTED = {*OF_BINDINGS, *OF_FUNCTIONS} - {"AttachExternModules", "UpdateParamStructInfo"}


@pytest.mark.parametrize("name", sorted(OF_NESTED))
def test_work_on_functions_in_functions_is_at_most_quadratic(name: str) -> None:
    step = {**OF_BINDINGS, **OF_FUNCTIONS}[name]
    step(nested(3))
    shallow, deep = nested(12), nested(24)
    assert calls(lambda: step(deep)) <= 4.5 * calls(lambda: step(shallow))
