"""Operators on operands of which nothing is known beforehand: lowered when values arrive."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy.errors import CompileError, FunctionSignatureError, RuntimeCheckError, StructInfoError
from relaxpy.exec.api.compile import compile
from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.runtime import dynamic
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir import DataType, IRModule, Op
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.ir.ops.cases import CASES, Case
from tests.ir.ops.comparison import check, define
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.ops.variants import one_call
from tests.rows import draw, third

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])
OPEN = [case for case in CASES if "shape" not in case.needs]


def program(case: Case, *, ndim: bool, dtype: bool) -> IRModule:
    """A function of one call; of its operands the rank is known, the datatype, or nothing."""
    params = []
    for k, array in enumerate(case.inputs):
        kind = DataType(array.dtype if dtype else "void")
        sinfo = rx.TensorStructInfo(None, kind, ndim=array.ndim if ndim else -1)
        params.append(rx.Var(f"x{k}", sinfo))
    return one_call(case, params)


def most_open(case: Case, *, ndim: bool = False) -> IRModule:
    """The program that states least about its operands among those that the operator takes."""
    return program(case, ndim=ndim or "rank" in case.needs, dtype="dtype" in case.needs)


def agree(module: IRModule, case: Case, target: str) -> None:
    with np.errstate(all="ignore"):
        definition = define(case.expected, case.inputs)
        main = compile(module, target)["main"]
        for _ in range(2):
            check(main(*case.inputs), definition, case.roundings)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "drawn" in metafunc.fixturenames:
        ways = [(False, "numpy"), (False, "reference"), (True, "numpy")]
        rows = third(draw(metafunc.config, [*product(OPEN, ways)], lambda row: row[0].operator))
        ids = [f"{case.name}-{'rank' if ndim else 'nothing'}-{to}" for case, (ndim, to) in rows]
        metafunc.parametrize("drawn", rows, ids=ids)
    if "any_case" in metafunc.fixturenames:
        rows = draw(metafunc.config, CASES, lambda case: case.operator)
        metafunc.parametrize("any_case", rows, ids=lambda case: case.name)


def test_operators_compute_the_definition_on_values_of_which_little_is_known(drawn) -> None:
    case, (ndim, target) = drawn
    agree(most_open(case, ndim=ndim), case, target)


def refuses(case: Case, *, ndim: bool, dtype: bool) -> bool:
    try:
        program(case, ndim=ndim, dtype=dtype)
    except (StructInfoError, relaxpy.errors.MisuseError):
        return True
    return False


def test_operators_need_no_more_of_their_operands_than_their_rows_list(any_case: Case) -> None:
    assert refuses(any_case, ndim=True, dtype=True) == ("shape" in any_case.needs)
    if "shape" not in any_case.needs:
        assert refuses(any_case, ndim=False, dtype=True) == ("rank" in any_case.needs)
        assert refuses(any_case, ndim=True, dtype=False) == ("dtype" in any_case.needs)


@I.ir_module
class Open:
    @R.function
    def add(x: R.Tensor, y: R.Tensor) -> R.Tensor:
        return R.add(x, y)

    @R.function
    def undecided(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        return R.multiply(x, y)

    @R.function
    def reshape(x: R.Tensor, s: R.Shape(ndim=2)):
        return R.reshape(x, s)

    @R.function
    def of_shape(s: R.Shape(ndim=2), x: R.Tensor(s, "float32")):  # noqa: F821
        return R.exp(x)

    @R.function
    def concat(x: R.Object):
        t = R.match_cast(x, R.Tuple(R.Tensor, R.Tensor))
        return R.concat(t, axis=1)

    @R.function
    def halves(x: R.Tensor(ndim=1)):
        parts = R.split(x, 2)
        return R.add(parts[0], parts[1])

    @R.function
    def scaled(x: R.Tensor, p: R.Prim("float32")):
        return R.multiply(x, p)

    @R.function
    def total(p: R.Prim("int64"), q: R.Prim("int64")):
        return R.add(p, q)

    @R.function
    def counted(start: R.Prim("int64"), end: R.Prim("int64")):
        return R.arange(start, end)

    @R.function
    def cut(x: R.Tensor, begin: R.Prim("int64"), end: R.Prim("int64"), by: R.Prim("int64")):
        return R.strided_slice(x, (0,), (begin,), (end,), (by,))

    @R.function
    def branches(flag: R.Tensor((), "bool"), x: R.Tensor, y: R.Tensor):
        @R.function
        def both(a: R.Tensor, b: R.Tensor) -> R.Tensor:
            return R.add(R.exp(a), b)

        if flag:
            z = both(x, y)
        else:
            w = both(y, x)
            z = R.matmul(w, w)
        return z

    @T.prim_func(private=True)
    def doubled(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 2), "float32")
        B = T.match_buffer(b, (n, 2), "float32")
        for i, j in T.grid(n, 2):
            with T.block("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def kernel_after(x: R.Tensor, s: R.Shape(["n"])):
        n = T.int64()
        y = R.add(x, x)
        return R.call_tir(Open.doubled, (y,), R.Tensor((n, 2), "float32"))


@pytest.fixture(scope="module", params=["native", "numpy", "reference"])
def opened(request: pytest.FixtureRequest) -> relaxpy.Executable:
    return compile(Open, request.param)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(dtype)


SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((), (4,)), ((2, 1), (1, 5)), ((0, 3), (3,)), ((), ())]


@pytest.mark.rule("OP-16")
def test_one_artefact_serves_ranks_datatypes_and_broadcasts_in_turn(opened) -> None:
    for dtype in ("float32", "int64", "float64", "uint8"):
        for left, right in SHAPES * 2:
            x, y = numbers(*left, dtype=dtype), numbers(*right, dtype=dtype)
            found = opened["add"](x, y)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, x + y)
    narrow = numbers(2, 2).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(opened["add"](narrow, narrow), narrow + narrow)


def test_an_undecided_broadcast_is_decided_by_the_sizes(opened: relaxpy.Executable) -> None:
    for n, m in ((3, 3), (1, 4), (4, 1), (1, 1)):
        x, y = numbers(n), numbers(m)
        np.testing.assert_array_equal(opened["undecided"](x, y), x * y)


def test_shapes_tuples_and_scalars_are_operands_too(opened: relaxpy.Executable) -> None:
    for shape in ((2, 6), (6, 2), (12, 1)):
        found = opened["reshape"](numbers(3, 4), ShapeTuple(shape))
        np.testing.assert_array_equal(found, numbers(*shape))
    np.testing.assert_allclose(
        opened["of_shape"](ShapeTuple((1, 3)), numbers(1, 3)), np.exp(numbers(1, 3)), rtol=1e-6
    )
    pair = numbers(2, 1), numbers(2, 3)
    np.testing.assert_array_equal(opened["concat"](pair), np.concatenate(pair, 1))
    np.testing.assert_array_equal(opened["halves"](numbers(6)), [5, 7, 9])
    for factor in (2.0, 0.5, -0.0):
        found = opened["scaled"](numbers(2), factor)
        np.testing.assert_array_equal(found, numbers(2) * np.float32(factor))
        np.testing.assert_array_equal(np.signbit(found), np.signbit([factor, factor]))
    assert [opened["total"](2, k) for k in (3, -5)] == [5, -3]


def test_kernels_take_what_operators_give(opened: relaxpy.Executable) -> None:
    for n in (2, 3):
        found = opened["kernel_after"](numbers(n, 2), ShapeTuple((n,)))
        np.testing.assert_array_equal(found, 4 * numbers(n, 2))


def test_scalars_mean_what_their_values_mean_as_literals(opened: relaxpy.Executable) -> None:
    for start, end in ((2, 6), (0, 3), (5, 1)):
        np.testing.assert_array_equal(opened["counted"](start, end), np.arange(start, end))
    x = numbers(7)
    for begin, end, by in ((1, 5, 1), (-1, 7, 4), (-3, -1, 1), (5, 0, -2), (2, 99, 3)):
        np.testing.assert_array_equal(opened["cut"](x, begin, end, by), x[begin:end:by])


def test_branches_and_local_functions_see_other_shapes_each_time(opened) -> None:
    for n in (2, 3):
        x, y = numbers(n, n) / 10, numbers(n)
        found = opened["branches"](np.array(True), x, y)
        np.testing.assert_allclose(found, np.exp(x) + y, rtol=1e-6)
        w = np.exp(y) + x
        np.testing.assert_allclose(opened["branches"](np.array(False), x, y), w @ w, rtol=1e-5)


WRONG: list[tuple[str, Callable[[], tuple[Any, ...]], str, tuple[str, ...]]] = [
    (
        "add",
        lambda: (numbers(2, 3), numbers(4)),
        "R.add(x, y)",
        ("relax.add: x1 and x2 do not broadcast", "R.Tensor((2, 3)", "R.Tensor((4,)"),
    ),
    (
        "add",
        lambda: (numbers(2), numbers(2, dtype="int32")),
        "R.add(x, y)",
        ("relax.add: x1 and x2 have one datatype", "float32", "int32", "R.astype"),
    ),
    ("undecided", lambda: (numbers(3), numbers(2)), "R.multiply(x, y)", ("relax.multiply: x1",)),
    (
        "reshape",
        lambda: (numbers(5), ShapeTuple((2, 3))),
        "R.reshape(x, s)",
        ("relax.reshape", "x is R.Tensor((5,)", "shape is R.Shape([2, 3])"),
    ),
    (
        "concat",
        lambda: ((numbers(2, 1), numbers(3, 1)),),
        "R.concat(t, axis=1)",
        ("relax.concat: tensors differ in dimension 0", "R.Tensor((3, 1)"),
    ),
    (
        "cut",
        lambda: (numbers(3), 0, 3, 0),
        "R.strided_slice(x, (0,), (begin,), (end,), (by,))",
        ("relax.strided_slice: stride",),
    ),
    (
        "kernel_after",
        lambda: (numbers(3, 2), ShapeTuple((4,))),
        'R.call_tir(Open.doubled, (y,), R.Tensor((n, 2), "float32"))',
        ("parameter b of doubled", "a float32 tensor of shape (4, 2)", "dimension 0 is 4, but n"),
    ),
    (
        "kernel_after",
        lambda: (numbers(3), ShapeTuple((3,))),
        'R.call_tir(Open.doubled, (y,), R.Tensor((n, 2), "float32"))',
        ("parameter a of doubled", "its rank (ndim) is 1, not 2"),
    ),
    ("add", lambda: (numbers(2).astype(">f4"), numbers(2)), "R.add(x, y)", ("swapped bytes",)),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("name", "args", "at", "parts"), WRONG)
def test_what_the_operator_does_not_take_is_refused_where_it_stands(opened, name, args, at, parts):
    for _ in range(2):
        with pytest.raises(RuntimeCheckError) as caught:
            opened[name](*args())
        span = caught.value.diagnostic.span
        assert span is not None
        line = span.source.line(span.line)
        assert line[span.column - 1 : span.end_column - 1] == at
        for part in parts:
            assert part in str(caught.value)


def test_an_array_that_is_not_a_tensor_is_refused_at_the_signature(opened) -> None:
    with pytest.raises(FunctionSignatureError, match="not a tensor"):
        opened["add"](np.array([None]), numbers(1))


@TARGETS
@pytest.mark.rule("OP-16")
def test_an_operator_without_legalisation_is_refused_when_compiling(target: str) -> None:
    op = Op("test.unlowered")
    op.set_attr("FPurity", True)
    x = rx.Var("x", rx.TensorStructInfo(None, "void"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(rx.Call(op, (x,))))
    with pytest.raises(CompileError, match=r"operator test\.unlowered has no lowering \(in main\)"):
        compile(builder.finalize(), target)


@TARGETS
def test_the_report_tells_which_operators_are_lowered_at_run_time(target: str) -> None:
    rows = {row.block: row for row in compile(Open, target).report()}
    assert rows["undecided"].kernel == "relax.multiply"
    assert rows["undecided"].method == "lowered at run time"
    assert rows["reshape"].reason == "operands are R.Tensor, R.Shape(ndim=2)"


def test_they_are_saved_and_loaded_as_the_program_has_them(tmp_path: Path) -> None:
    compile(Open).save(tmp_path / "open.json")
    again = relaxpy.load_executable(tmp_path / "open.json")
    np.testing.assert_array_equal(again["add"](numbers(2, 1), numbers(3)), [[2, 3, 4], [3, 4, 5]])
    with pytest.raises(RuntimeCheckError, match="x1 and x2 do not broadcast"):
        again["add"](numbers(2), numbers(3))


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels compiled from now on."""
    made: list[str] = []

    def count(func: Any, name: str, *names: str) -> Any:
        made.append(name)
        return compile_kernel(func, name, *names)

    monkeypatch.setattr("relaxpy.exec.program.lower.python_module.compile_kernel", count)
    return made


def test_a_kernel_is_made_for_a_pattern_and_not_for_a_shape(monkeypatch) -> None:
    made = counting(monkeypatch)
    add = compile(Open, "numpy")["add"]
    assert made == ["doubled"]
    made.clear()
    for n in range(2, 9):
        add(numbers(n, 20), numbers(20))
        add(numbers(n, 20), numbers(n, 1))
    assert made == ["add", "add"]
    add(numbers(3, 20, dtype="int32"), numbers(20, dtype="int32"))
    add(numbers(1, 20), numbers(20))
    assert made == ["add"] * 4


def test_calls_alike_share_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    func = from_source(
        """
        @R.function
        def main(x: R.Tensor, y: R.Tensor):
            a = R.add(x, y)
            b = R.add(a, y)
            return R.add(b, R.const(1, "float32"))
        """
    )
    made = counting(monkeypatch)
    main = compile(func, "numpy")["main"]
    np.testing.assert_array_equal(main(numbers(3), numbers(3)), 3 * numbers(3) + 1)
    assert len(made) == 2


@TARGETS
def test_an_error_has_the_position_of_its_own_call(target: str) -> None:
    text = """
@R.function
def main(x: R.Tensor(ndim=1), i: R.Tensor(ndim=1), j: R.Tensor(ndim=1)):
    a = R.take(x, i, axis=0)
    b = R.take(x, j, axis=0)
    return (a, b)
"""
    main = compile(from_source(text), target)["main"]
    inside, outside = np.array([0, 1]), np.array([0, 7])
    for indices, line in (((inside, outside), 5), ((outside, inside), 4)):
        with pytest.raises(RuntimeCheckError, match="index 7 is outside") as caught:
            main(numbers(3), *indices)
        assert caught.value.diagnostic.span.line == line


def test_a_new_legalisation_is_used_by_the_next_executable() -> None:
    with forgotten_operators():

        @register("test.twice", pure=True, legalize=lambda builder, call: R.add(*call.args * 2))
        def twice(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
            return x

        builder = BlockBuilder()
        x = rx.Var("x", rx.TensorStructInfo(dtype="float32"))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(twice(x)))
        module = builder.finalize()
        assert compile(module, "reference", relax_pipeline=None)["main"](numbers(3))[2] == 6
        twice.op.extend(legalize=lambda builder, call: R.multiply(*call.args * 2))
        assert compile(module, "reference", relax_pipeline=None)["main"](numbers(3))[2] == 9


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.Kept, "PROGRAMS", 3)
    monkeypatch.setattr(tuning.Kept, "SHAPES", 3)
    kept: list[dynamic.DynamicPrograms] = []
    original = dynamic.DynamicPrograms.find

    def find(self: dynamic.DynamicPrograms, *args: Any) -> Any:
        kept.append(self)
        return original(self, *args)

    monkeypatch.setattr(dynamic.DynamicPrograms, "find", find)
    add = compile(Open)["add"]
    for ndim in (1, 2, 3, 4, 5, 1, 2):
        x = numbers(*range(2, ndim + 2))
        np.testing.assert_array_equal(add(x, x), x + x)
        assert len(kept[-1]) <= 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_two_shapes_broadcast_as_in_numpy_or_are_refused(data: st.DataObject) -> None:
    sizes = st.lists(st.sampled_from((0, 1, 2, 3)), max_size=3).map(tuple)
    x, y = (numbers(*data.draw(sizes)) for _ in range(2))
    try:
        expected = x + y
    except ValueError:
        with pytest.raises(RuntimeCheckError, match="do not broadcast"):
            ADD(x, y)
    else:
        np.testing.assert_array_equal(ADD(x, y), expected)


ADD = compile(Open)["add"]
