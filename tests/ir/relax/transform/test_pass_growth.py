"""Ten times the bindings are at most about ten times the work of a pass."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from relaxpy import IRModule
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.relax import backend, transform
from relaxpy.relax.transform import Normalize
from tests.counting import calls
from tests.ir.relax.sinfos import rank, tensor

SMALL, LARGE = 60, 600
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
    "AttachGlobalSymbol": transform.AttachGlobalSymbol(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "ExpandTupleArguments": transform.ExpandTupleArguments(),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "LambdaLift": transform.LambdaLift(),
    "RemoveUnusedOutputs": transform.RemoveUnusedOutputs(),
    "RemoveUnusedParameters": transform.RemoveUnusedParameters(),
}


def check_growth(step: Callable[[IRModule], IRModule], small: IRModule, large: IRModule) -> None:
    step(small.clone())  # what is computed once for all programs
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
