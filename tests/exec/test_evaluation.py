"""The rules of evaluation, each on both targets."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar

import numpy as np
import pytest

from relaxpy.errors import (
    AssertionFailedError,
    CompileError,
    RuntimeCheckError,
    UnknownPackedFuncError,
)
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.registry import list_global_func_names, register_func, remove_global_func
from relaxpy.exec.runtime.values import Category, Closure, PrimFuncValue, ShapeTuple, category_of
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, stmt as st
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.kernels import (
    buffer,
    call_tir,
    elementwise,
    function,
    matmul,
    module,
    prim_func,
    size_var,
    tensor,
)

Compile = Callable[..., Executable]
F2 = tensor((2,))
X = np.array([1.0, 2.0], "float32")


@pytest.fixture(params=["reference", "numpy"])
def build(request: pytest.FixtureRequest) -> Compile:
    def compiled(mod: IRModule | None = None, **functions: rx.BaseFunc) -> Executable:
        return compile(mod or module(**functions), request.param, relax_pipeline=None)

    return compiled


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def op(name: str, *args: rx.Expr, **attrs: object) -> rx.Call:
    return rx.Call(Op(f"relax.{name}"), args, attrs)


def packed_call(name: str, *args: rx.Expr, sinfo: rx.StructInfo | None = None) -> rx.Call:
    return rx.Call(rx.ExternFunc(name), args, sinfo_args=() if sinfo is None else (sinfo,))


def seq(result: rx.Expr, *bindings: tuple[rx.Var, rx.Expr]) -> rx.SeqExpr:
    made = tuple(rx.VarBinding(*b) for b in bindings)
    return rx.SeqExpr((rx.BindingBlock(made),) if made else (), result)


def add_one(name: str = "add_one") -> PrimFunc:
    return elementwise((2,), lambda x: x + 1.0, name)


# ---- values and variables


@pytest.mark.rule("EV-1", "EV-3", "EV-21")
def test_a_variable_gives_the_very_value_bound_to_it(build: Compile) -> None:
    x, y = rx.Var("x", F2), rx.Var("y", F2)
    ex = build(main=function([x], [(y, x)], y))
    assert ex["main"](X) is X


@pytest.mark.rule("EV-2")
def test_each_evaluation_of_a_constant_is_a_new_tensor(build: Compile) -> None:
    a, b = rx.Var("a"), rx.Var("b")
    literal = rx.const(np.array([1.0, 2.0], "float32"))
    ex = build(main=function([], [(a, literal), (b, literal)], rx.Tuple((a, b, literal))))
    first, second, third = ex["main"]()
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, third)
    first[0] = 7
    np.testing.assert_array_equal(ex["main"]()[0], [1.0, 2.0])


@pytest.mark.rule("EV-2", "VAL-12")
def test_a_constant_that_a_packed_function_changes_is_new_the_next_time(build: Compile) -> None:
    @register_func("test.double")
    def double(array: np.ndarray) -> np.ndarray:
        array *= 2
        return array

    c, y = rx.Var("c"), rx.Var("y")
    literal = rx.const(np.float32(3))
    ex = build(main=function([], [(c, literal), (y, packed_call("test.double", c))], y, pure=False))
    assert ex["main"]() == 6
    assert ex["main"]() == 6


@pytest.mark.rule("EV-4", "EV-5", "VAL-3")
def test_fields_of_tuples_alias_their_values(build: Compile) -> None:
    x, t, y = rx.Var("x", F2), rx.Var("t"), rx.Var("y")
    nested = rx.Tuple((x, rx.Tuple((x, rx.PrimValue(3)))))
    field = rx.TupleGetItem(rx.TupleGetItem(t, 1), 0)
    ex = build(main=function([x], [(t, nested), (y, field)], rx.Tuple((t, y))))
    (first, (second, three)), y_value = ex["main"](X)
    assert first is X
    assert second is X
    assert y_value is X
    assert three == 3


@pytest.mark.rule("VAL-4")
def test_the_empty_tuple_is_a_value(build: Compile) -> None:
    assert build(main=function([], [], rx.Tuple(())))["main"]() == ()


@pytest.mark.rule("EV-6", "PX-6", "FN-4")
def test_a_shape_is_built_from_the_present_sizes(build: Compile) -> None:
    n = size_var("n")
    x = rx.Var("x", tensor((n, 3)))
    ex = build(main=function([x], [], rx.ShapeExpr((n, n * 2 + 1, 5))))
    shape = ex["main"](np.zeros((4, 3), "float32"))
    assert type(shape) is ShapeTuple
    assert shape == (4, 9, 5)


@pytest.mark.rule("EV-7", "VAL-15")
@pytest.mark.parametrize(
    ("expr", "expected", "kind"),
    [
        (rx.PrimValue(3), 3, int),
        (rx.PrimValue(tir.FloatImm("float64", 0.5)), 0.5, float),
        (rx.PrimValue(tir.FloatImm("float32", 0.5)), 0.5, np.float32),
        (rx.PrimValue(tir.FloatImm("float64", float("inf"))), float("inf"), float),
        (rx.PrimValue(tir.IntImm("bool", 1)), True, bool),
        (rx.PrimValue(tir.IntImm("int32", -4)), -4, np.int32),
        (rx.StringImm("a 'quoted' text\n"), "a 'quoted' text\n", str),
        (rx.DataTypeImm("float16"), "float16", DataType),
    ],
)
def test_literals_give_what_they_hold(
    build: Compile, expr: rx.Expr, expected: object, kind: type
) -> None:
    value = build(main=function([], [], expr))["main"]()
    assert value == expected
    assert type(value) is kind


@pytest.mark.rule("EV-7", "RES-46", "PX-1")
def test_a_prim_value_may_be_computed_from_sizes(build: Compile) -> None:
    n = size_var("n")
    x = rx.Var("x", tensor((n,)))
    parts = [
        rx.PrimValue(tir.FloorDiv(n, tir.IntImm("int64", 2))),
        rx.PrimValue(tir.Div(n - 10, tir.IntImm("int64", 2))),
        rx.PrimValue(tir.Mod(n - 10, tir.IntImm("int64", 2))),
        rx.PrimValue(tir.FloorMod(n - 10, tir.IntImm("int64", 4))),
        rx.PrimValue(tir.Max(n, tir.IntImm("int64", 5))),
        rx.PrimValue(tir.Select(tir.LT(n, tir.IntImm("int64", 4)), n, n * 2)),
        rx.PrimValue(tir.And(tir.LT(n, tir.IntImm("int64", 4)), tir.Not(tir.EQ(n, n)))),
        rx.PrimValue(tir.Cast("float32", n)),
        rx.PrimValue(tir.Cast("int32", n)),
        rx.PrimValue(intrin.if_then_else(tir.GT(n, tir.IntImm("int64", 2)), n, n + 1)),
    ]
    ex = build(main=function([x], [], rx.Tuple(tuple(parts))))
    values = ex["main"](np.zeros(3, "float32"))
    assert values == (1, -3, -1, 1, 5, 3, False, 3.0, 3, 3)
    kinds = [type(v) for v in values]
    assert kinds == [int] * 6 + [bool, np.float32, np.int32, int]


@pytest.mark.rule("PX-3", "PX-9")
def test_wrong_arithmetic_of_sizes_is_a_run_time_error(build: Compile) -> None:
    n = size_var("n")
    x = rx.Var("x", rx.ShapeStructInfo((n,)))
    divide = build(main=function([x], [], rx.ShapeExpr((tir.FloorDiv(tir.IntImm("int64", 8), n),))))
    assert divide["main"](ShapeTuple((3,))) == (2,)
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        divide["main"](ShapeTuple((0,)))
    square = build(main=function([x], [], rx.ShapeExpr((n * n,))))
    assert square["main"](ShapeTuple((2**31,))) == (2**62,)
    with pytest.raises(RuntimeCheckError, match="outside the range of int64"):
        square["main"](ShapeTuple((2**32,)))


# ---- functions


@pytest.mark.rule("EV-8", "EV-10", "VAL-5", "EV-18")
def test_a_closure_holds_references_to_what_it_captured(build: Compile) -> None:
    x, y, f, r = rx.Var("x", F2), rx.Var("y", F2), rx.Var("f"), rx.Var("r")
    inner = function([y], [], rx.Tuple((x, y)), name=None)
    ex = build(main=function([x], [(f, inner), (r, rx.Call(f, (x,)))], rx.Tuple((f, r))))
    x_value = X.copy()
    closure, result = ex["main"](x_value)
    assert category_of(closure) is Category.CLOSURE
    assert isinstance(closure, Closure)
    assert result == (x_value, x_value)
    x_value[0] = 9
    captured, _ = closure(X)
    assert captured is x_value


@pytest.mark.rule("EV-8", "PX-10", "RES-54")
def test_a_closure_holds_the_sizes_of_when_it_was_made(build: Compile) -> None:
    n = size_var("n")
    x, y, f = rx.Var("x", tensor((n,))), rx.Var("y", tensor((n,))), rx.Var("f")
    inner = function([y], [], rx.ShapeExpr((n + 1,)), name=None)
    ex = build(main=function([x], [(f, inner)], f))
    three, four = ex["main"](np.zeros(3, "float32")), ex["main"](np.zeros(4, "float32"))
    assert three(np.zeros(3, "float32")) == (4,)
    assert four(np.zeros(4, "float32")) == (5,)
    assert three.struct_info.params == (tensor((3,)),)


@pytest.mark.rule("EV-11")
def test_a_closure_does_not_capture_dataflow_vars(build: Compile) -> None:
    x, y, f, r = rx.Var("x", F2), rx.DataflowVar("y", F2), rx.Var("f"), rx.Var("r")
    inner = function([], [], y, name=None)
    main = function([x], [(y, x), (f, inner), (r, rx.Call(f, ()))], r, dataflow=True)
    with pytest.raises((RuntimeCheckError, CompileError), match="variable y is not bound here"):
        build(main=main)["main"](X)


@pytest.mark.rule("VAL-13", "VAL-14")
def test_opaque_objects_keep_their_identity_everywhere(build: Compile) -> None:
    register_func("test.same", lambda value: value)
    x, t, f, y, z = (rx.Var(name) for name in "xtfyz")
    inner = function([rx.Var("p")], [], x, name=None)
    bindings = [
        (y, packed_call("test.same", x)),
        (t, rx.Tuple((y,))),
        (f, inner),
        (z, rx.Call(f, (rx.TupleGetItem(t, 0),))),
    ]
    opaque = object()
    first, [second] = build(main=function([x], bindings, rx.Tuple((z, t)), pure=False))["main"](
        opaque
    )
    assert first is opaque
    assert second is opaque


@pytest.mark.rule("VAL-16")
def test_none_is_the_null_object(build: Compile) -> None:
    seen = []
    register_func("test.nothing", seen.append)
    x, y = rx.Var("x"), rx.Var("y")
    ex = build(
        main=function([x], [(y, packed_call("test.nothing", x))], rx.Tuple((x, y)), pure=False)
    )
    assert ex["main"](None) == (None, None)
    assert seen == [None]


@pytest.mark.rule("EV-9", "VAL-6", "EV-12", "SC-4")
def test_a_local_function_calls_itself(build: Compile) -> None:
    """sum(k) = k + sum(k - 1), over packed arithmetic."""
    register_func("test.is_zero", lambda k: np.array(int(k) == 0), pure=True)
    register_func("test.minus_one", lambda k: k - 1)
    register_func("test.add", lambda a, b: a + b)
    k, c, down, rest, total = (rx.Var(name) for name in ("k", "c", "down", "rest", "total"))
    f, r, result = rx.Var("f"), rx.Var("r"), rx.Var("result")
    again = seq(
        total,
        (down, packed_call("test.minus_one", k)),
        (rest, rx.Call(f, (down,))),
        (total, packed_call("test.add", k, rest)),
    )
    condition = packed_call("test.is_zero", k, sinfo=tensor((), "bool"))
    body = [(c, condition), (r, rx.If(c, seq(k), again))]
    start = rx.Var("start")
    inner = function([k], body, r, name=None, pure=False)
    ex = build(
        main=function([start], [(f, inner), (result, rx.Call(f, (start,)))], result, pure=False)
    )
    assert ex["main"](10) == 55


@pytest.mark.rule("EV-9")
def test_a_recursive_closure_can_hand_itself_on(build: Compile) -> None:
    f, g = rx.Var("f"), rx.Var("g")
    inner = function([], [], f, name=None)
    ex = build(main=function([], [(f, inner), (g, rx.Call(f, ()))], rx.Tuple((f, g))))
    closure, handed_on = ex["main"]()
    assert closure is handed_on
    assert closure() is closure


@pytest.mark.rule("EV-18", "SC-6")
def test_the_callers_variables_are_not_those_of_the_callee(build: Compile) -> None:
    x, y = rx.Var("x", F2), rx.Var("x", F2)
    other = rx.GlobalVar("other")
    mod = IRModule(
        {
            other: function([y], [], rx.Tuple((y,)), name="other"),
            "main": function([x], [], rx.Call(other, (x,))),
        }
    )
    assert build(mod)["main"](X) == (X,)


@pytest.mark.rule("EV-12")
@pytest.mark.parametrize(("chosen", "expected"), [(True, 1), (False, 2)])
def test_an_if_evaluates_one_branch(build: Compile, chosen: bool, expected: int) -> None:
    calls = []
    register_func("test.note", lambda value: calls.append(value) or value)
    c, r, a, b = rx.Var("c", tensor((), "bool")), rx.Var("r"), rx.Var("a"), rx.Var("b")
    branch = rx.If(
        c,
        seq(a, (a, packed_call("test.note", rx.PrimValue(1)))),
        seq(b, (b, packed_call("test.note", rx.PrimValue(2)))),
    )
    ex = build(main=function([c], [(r, branch)], r, pure=False))
    assert ex["main"](np.array(chosen)) == expected
    assert calls == [expected]


@pytest.mark.rule("EV-12", "RES-24")
@pytest.mark.parametrize("value", [np.array([True]), np.array(1), 1, True, None])
def test_a_condition_is_a_boolean_of_rank_0(build: Compile, value: object) -> None:
    c, r = rx.Var("c"), rx.Var("r")
    branch = rx.If(c, seq(rx.PrimValue(1)), seq(rx.PrimValue(0)))
    ex = build(main=function([c], [(r, branch)], r))
    assert ex["main"](np.array(True)) == 1
    with pytest.raises(RuntimeCheckError, match="a condition is a Boolean tensor of rank 0"):
        ex["main"](value)


@pytest.mark.rule("EV-12", "RES-24")
@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("R.logical_and(n % 3 == 0, R.const(True))", lambda n, c: n % 3 == 0),
        ("R.logical_and(n > 2, R.const(True))", lambda n, c: n > 2),
        ("R.logical_and(c, R.const(True))", lambda n, c: c),
    ],
)
def test_scalars_become_conditions(
    build: Compile, condition: str, chosen: Callable[[int, bool], bool]
) -> None:
    ex = build(
        main=from_source(
            "@R.function\n"
            'def main(x: R.Tensor(("n",), "float32"), c: R.Prim("bool")):\n'
            "    n = T.int64()\n"
            f"    if {condition}:\n        y = R.add(x, x)\n"
            "    else:\n        y = R.multiply(x, x)\n    return y\n"
        )
    )
    for n, c in ((1, True), (3, False), (4, True)):
        expected = 6.0 if chosen(n, c) else 9.0
        assert ex["main"](np.full(n, 3, "float32"), c).tolist() == [expected] * n


@pytest.mark.rule("EV-13", "EV-19", "FN-12")
def test_packed_functions_are_looked_up_when_called(build: Compile) -> None:
    x, y = rx.Var("x"), rx.Var("y")
    ex = build(main=function([x], [(y, packed_call("test.late", x, x))], y, pure=False))
    with pytest.raises(UnknownPackedFuncError, match=r"'test\.late'"):
        ex["main"](X)
    register_func("test.late", lambda *args: args)
    assert ex["main"](X) == (X, X)
    register_func("test.late", lambda *args: len(args), override=True)
    assert ex["main"](X) == 2


@pytest.mark.rule("EV-13", "VAL-9")
def test_a_packed_function_is_a_value(build: Compile) -> None:
    register_func("test.pair", lambda a: (a, a))
    x, f, y = rx.Var("x"), rx.Var("f"), rx.Var("y")
    ex = build(
        main=function([x], [(f, rx.ExternFunc("test.pair")), (y, rx.Call(f, (x,)))], y, pure=False)
    )
    assert ex["main"](5) == (5, 5)


@pytest.mark.rule("EV-14")
def test_a_prim_func_can_be_called_by_its_symbol(build: Compile) -> None:
    x, o, u = rx.Var("x", F2), rx.Var("o", F2), rx.Var("u")
    call = packed_call("kernel", x, o)
    ex = build(add_one=add_one("kernel"), main=function([x, o], [(u, call)], u, pure=False))
    out = np.zeros(2, "float32")
    assert ex["main"](X, out) == ()
    np.testing.assert_array_equal(out, X + 1)


@pytest.mark.rule("EV-15", "EV-17", "NF-17")
def test_arguments_are_evaluated_from_left_to_right_after_the_callee(build: Compile) -> None:
    order: list[str] = []

    def note(text: str) -> object:
        order.append(text)
        return (lambda *args: args) if text == "callee" else text

    register_func("test.note", note)

    def noted(text: str) -> rx.Call:
        return packed_call("test.note", rx.StringImm(text))

    nested = rx.Call(noted("callee"), (noted("a"), rx.Tuple((noted("b"), noted("c")))))
    ex = build(main=function([], [], nested, pure=False))
    assert ex["main"]() == ("a", ("b", "c"))
    assert order == ["callee", "a", "b", "c"]


@pytest.mark.rule("EV-19", "DER-29")
def test_a_packed_function_that_is_a_value_gets_attributes_and_has_the_declared_result(
    build: Compile,
) -> None:
    register_func("test.three", lambda **attrs: 3 + attrs["more"])
    f, y, scalar = rx.Var("f"), rx.Var("y"), tensor((), "int64")
    call = rx.Call(f, (), {"more": 1}, (scalar,))
    ex = build(main=function([], [(f, rx.ExternFunc("test.three")), (y, call)], y, pure=False))
    result = ex["main"]()
    assert isinstance(result, np.ndarray)
    assert result == 4


@pytest.mark.rule("EV-20", "EV-23", "RES-53", "SC-14")
def test_sizes_bound_in_a_dataflow_block_outlive_it(build: Compile) -> None:
    n = size_var("n")
    x, y = rx.Var("x", rx.TensorStructInfo(None, "float32")), rx.DataflowVar("y", tensor((n,)))
    cast = rx.MatchCast(y, x, tensor((n,)))
    ex = build(main=function([x], [cast], rx.ShapeExpr((n,)), dataflow=True))
    assert ex["main"](X) == (2,)


@pytest.mark.rule("EV-23", "SC-7")
def test_a_dataflow_var_is_gone_after_its_block() -> None:
    x, y = rx.Var("x", F2), rx.DataflowVar("y", F2)
    ex = compile(
        module(main=function([x], [(y, x)], y, dataflow=True)), "reference", relax_pipeline=None
    )
    with pytest.raises(RuntimeCheckError, match="variable y is not bound here"):
        ex["main"](X)


@pytest.mark.rule("EV-27", "VAL-10")
def test_a_prim_func_is_a_value_and_can_be_called(build: Compile) -> None:
    gv = rx.GlobalVar("add_one")
    x, o, f, u = rx.Var("x", F2), rx.Var("o", F2), rx.Var("f"), rx.Var("u")
    main = function([x, o], [(f, gv), (u, rx.Call(f, (x, o)))], rx.Tuple((f, u)), pure=False)
    kernel, unit = (ex := build(IRModule({gv: add_one(), "main": main})))["main"](
        X, out := np.zeros(2, "float32")
    )
    assert isinstance(kernel, PrimFuncValue)
    assert unit == ()
    np.testing.assert_array_equal(out, X + 1)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        kernel(X)
    with pytest.raises(RuntimeCheckError, match="O"):
        kernel(X, np.zeros(3, "float32"))
    assert ex["add_one"](X, out) == ()


@pytest.mark.rule("EV-27")
def test_a_prim_func_gives_what_it_returns(build: Compile) -> None:
    v = tir.Var("v", "int64")
    square = prim_func([v], st.Evaluate(intrin.ret(tir.Mul(v, v))), "square", ret_type="int64")
    gv, x, y = rx.GlobalVar("square"), rx.Var("x", rx.PrimStructInfo("int64")), rx.Var("y")
    main = function([x], [(y, rx.Call(gv, (x,)))], y, pure=False)
    result = build(IRModule({gv: square, "main": main}))["main"](7)
    assert result == 49
    assert type(result) is int


@pytest.mark.rule("EV-17")
def test_what_is_not_a_function_cannot_be_called(build: Compile) -> None:
    f = rx.Var("f")
    ex = build(main=function([f], [], rx.Call(f, ()), pure=False))
    assert ex["main"](lambda: 5) == 5
    with pytest.raises(RuntimeCheckError, match=r"a float32 tensor of shape .* cannot be called"):
        ex["main"](X)


@pytest.mark.rule("EV-5")
def test_a_missing_field_is_named(build: Compile) -> None:
    t = rx.Var("t")
    ex = build(main=function([t], [], rx.TupleGetItem(t, 1)))
    assert ex["main"]((1, 2)) == 2
    with pytest.raises(RuntimeCheckError, match="a tuple of 1 field has no field 1"):
        ex["main"]((1,))
    with pytest.raises(RuntimeCheckError, match=r"the shape \(1, 2\) has no field 1"):
        ex["main"](ShapeTuple((1, 2)))


# ---- calls of kernels


@pytest.mark.rule("OP-5", "OP-6", "OP-7", "OP-4")
def test_call_tir_allocates_its_output_and_gives_it(build: Compile) -> None:
    n, n2 = size_var("n"), size_var("n")
    gv = rx.GlobalVar("mm")
    x, w = rx.Var("x", tensor((n, 3))), rx.Var("w", tensor((3, 2)))
    y = rx.Var("y", tensor((n, 2)))
    main = function([x, w], [(y, call_tir(gv, [x, w], tensor((n, 2))))], y, dataflow=True)
    ex = build(IRModule({gv: matmul(n2, 3, 2, "mm"), "main": main}))
    for count in (1, 4):
        a = np.arange(count * 3, dtype="float32").reshape(count, 3)
        b = np.arange(6, dtype="float32").reshape(3, 2)
        np.testing.assert_allclose(ex["main"](a, b), a @ b)


@pytest.mark.rule("OP-5", "OP-6")
def test_several_outputs_are_arguments_of_their_own(build: Compile) -> None:
    a, s, t = buffer((2,), "A"), buffer((2,), "S"), buffer((1,), "T", "int64")
    i = size_var("i")
    body = st.SeqStmt(
        (
            st.For(
                i, tir.IntImm("int64", 0), 2, st.ForKind.SERIAL, st.BufferStore(s, a[i] * 2.0, (i,))
            ),
            st.BufferStore(t, tir.IntImm("int64", 5), (tir.IntImm("int64", 0),)),
        )
    )
    gv, x, y, z = rx.GlobalVar("split"), rx.Var("x", F2), rx.Var("y"), rx.Var("z")
    out = rx.TupleStructInfo((F2, tensor((1,), "int64")))
    main = function(
        [x], [(y, call_tir(gv, [x], out)), (z, rx.TupleGetItem(y, 1))], rx.Tuple((y, z))
    )
    ex = build(IRModule({gv: prim_func([a, s, t], body, "split"), "main": main}))
    (doubled, five), z_value = ex["main"](X)
    np.testing.assert_array_equal(doubled, X * 2)
    assert five is z_value
    assert five.tolist() == [5]


def test_tir_vars_are_passed_as_scalars(build: Compile) -> None:
    n, m = size_var("n"), size_var("m")
    o, i = buffer((2,), "O", "int64"), size_var("i")
    zero = tir.IntImm("int64", 0)
    fill = st.For(i, zero, 2, st.ForKind.SERIAL, st.BufferStore(o, m, (i,)))
    gv, x = rx.GlobalVar("fill"), rx.Var("x", tensor((n,)))
    main = function([x], [], call_tir(gv, [], tensor((2,), "int64"), [n * 3]))
    ex = build(IRModule({gv: prim_func([o, m], fill, "fill"), "main": main}))
    assert ex["main"](np.zeros(5, "float32")).tolist() == [15, 15]


def test_a_tuple_variable_may_hold_the_inputs(build: Compile) -> None:
    gv, t = rx.GlobalVar("add"), rx.Var("t", rx.TupleStructInfo((F2, F2)))
    add = elementwise((2,), lambda a, b: a + b, "add", inputs=2)
    call = rx.Call(Op("relax.call_tir"), (gv, t), sinfo_args=(F2,))
    ex = build(IRModule({gv: add, "main": function([t], [], call)}))
    np.testing.assert_array_equal(ex["main"]((X, X)), X + X)


def test_an_input_can_be_an_output_in_place(build: Compile) -> None:
    a, i = buffer((2,), "A"), size_var("i")
    zero = tir.IntImm("int64", 0)
    body = st.For(i, zero, 2, st.ForKind.SERIAL, st.BufferStore(a, a[i] + 1.0, (i,)))
    gv, x, y = rx.GlobalVar("bump"), rx.Var("x", F2), rx.Var("y", F2)
    call = rx.Call(
        Op("relax.call_tir_inplace"), (gv, rx.Tuple((x,))), {"inplace_indices": (0,)}, (F2,)
    )
    ex = build(IRModule({gv: prim_func([a], body, "bump"), "main": function([x], [(y, call)], y)}))
    mine = X.copy()
    assert ex["main"](mine) is mine
    np.testing.assert_array_equal(mine, X + 1)


@pytest.mark.rule("OP-8")
def test_outputs_that_disagree_with_the_kernel_are_an_error(build: Compile) -> None:
    n = size_var("n")
    gv, x = rx.GlobalVar("copy"), rx.Var("x", tensor((n,)))
    copy = elementwise((2,), lambda v: v, "copy")
    ex = build(IRModule({gv: copy, "main": function([x], [], call_tir(gv, [x], tensor((n,))))}))
    np.testing.assert_array_equal(ex["main"](X), X)
    with pytest.raises(RuntimeCheckError, match="A0"):
        ex["main"](np.zeros(3, "float32"))


@pytest.mark.rule("OP-8")
def test_an_input_of_unknown_shape_is_checked_against_the_kernel(build: Compile) -> None:
    gv, x = rx.GlobalVar("mm"), rx.Var("x")
    y, w, n = rx.Var("y"), rx.Var("w"), size_var("n")
    mm = matmul(size_var("a"), size_var("b"), size_var("c"), "mm")
    main = function([x, w], [(y, call_tir(gv, [x, w], tensor((2, 2))))], y)
    ex = build(IRModule({gv: mm, "main": main}))
    a = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(ex["main"](a, a.T), a @ a.T)
    for wrong in (a, a.astype("float64").T, a[0], None, a.T[:, :1]):
        with pytest.raises(RuntimeCheckError, match=r"mm|O|C|B"):
            ex["main"](a, wrong)


def test_sizes_of_a_kernel_may_be_32_bit(build: Compile) -> None:
    n, m = tir.Var("n", "int32"), size_var("m")
    func = elementwise((n, tir.Add(n, tir.IntImm("int32", 1))), lambda v: v * 2.0, "twice")
    gv, x = rx.GlobalVar("twice"), rx.Var("x", tensor((m, m + 1)))
    main = function([x], [], call_tir(gv, [x], tensor((m, m + 1))))
    a = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(build(IRModule({gv: func, "main": main}))["main"](a), a * 2)


@pytest.mark.rule("OP-9", "OP-10")
def test_call_dps_packed_hands_outputs_to_a_packed_function(build: Compile) -> None:
    @register_func("test.add")
    def add(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.add(a, b, out=out)

    n = size_var("n")
    x, y = rx.Var("x", tensor((n,))), rx.Var("y")
    call = rx.Call(
        Op("relax.call_dps_packed"),
        (rx.ExternFunc("test.add"), rx.Tuple((x, x))),
        sinfo_args=(tensor((n,)),),
    )
    ex = build(main=function([x], [(y, call)], y, pure=False))
    np.testing.assert_array_equal(ex["main"](X), X + X)


@pytest.mark.rule("OP-1")
def test_call_tir_calls_a_prim_func_of_the_module(build: Compile) -> None:
    other, x, y = rx.GlobalVar("other"), rx.Var("x", F2), rx.Var("y", F2)
    functions = {
        other: function([y], [], y, name="other"),
        "main": function([x], [], call_tir(other, [x], F2)),
    }
    with pytest.raises((RuntimeCheckError, CompileError), match="call_tir calls a PrimFunc"):
        build(IRModule(functions))["main"](X)


@pytest.mark.rule("OP-3", "OP-11")
def test_an_output_without_datatype_or_shape_is_refused(build: Compile) -> None:
    gv, x = rx.GlobalVar("add_one"), rx.Var("x", F2)
    for sinfo in (rx.TensorStructInfo(None, "float32"), tensor((2,), ""), rx.ObjectStructInfo()):
        main = function([x], [], call_tir(gv, [x], sinfo))
        with pytest.raises(CompileError, match="needs a datatype and a shape"):
            build(IRModule({gv: add_one(), "main": main}))["main"](X)


@pytest.mark.rule("PX-9")
def test_a_negative_size_cannot_be_allocated(build: Compile) -> None:
    n = size_var("n")
    gv, x = rx.GlobalVar("fill"), rx.Var("x", tensor((n,)))
    o = buffer((size_var("k"),), "O")
    func = prim_func([o], st.Evaluate(tir.IntImm("int32", 0)), "fill")
    main = function([x], [], call_tir(gv, [], tensor((n - 3,))))
    ex = build(IRModule({gv: func, "main": main}))
    assert ex["main"](np.zeros(4, "float32")).shape == (1,)
    with pytest.raises(RuntimeCheckError, match=r"cannot allocate a .* tensor of shape \(-1,\)"):
        ex["main"](X)


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize(
    "shape", [(2**50,), (2**20, 2**40), (2**31, 2**31), (0, 2**62, 2**62), (1,) * 80]
)
def test_memory_that_there_is_not_cannot_be_allocated(
    build: Compile, shape: tuple[int, ...]
) -> None:
    gv = rx.GlobalVar("fill")
    func = prim_func([buffer(shape, "O")], st.Evaluate(tir.IntImm("int32", 0)), "fill")
    ex = build(IRModule({gv: func, "main": function([], [], call_tir(gv, [], tensor(shape)))}))
    with pytest.raises(RuntimeCheckError, match="cannot allocate"):
        ex["main"]()


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("shape", [(2**62, 2), (0, 2**62, 2**62), (2**63 - 1,) * 40])
def test_tensors_that_no_memory_holds_are_compiled(shape: tuple[int, ...], target: str) -> None:
    """What is declared, and never made, does no harm; what is made is an error when it is."""
    mod = from_source(f"""
        @I.ir_module
        class M:
            @T.prim_func
            def kernel(A: T.Buffer({shape}, "int64")):
                T.evaluate(0)

            @R.function
            def same(x: R.Tensor({shape}, "int64")):
                return R.add(x, x)

            @R.function
            def product(x: R.Tensor({shape[-2:]}, "int64")):
                return R.matmul(x, R.permute_dims(x))

            @R.function
            def zeros():
                return R.zeros({shape}, "int64")
    """)
    ex = compile(mod, target=target)
    for name in ("kernel", "same", "product"):
        with pytest.raises(RuntimeCheckError, match=str(max(shape))):
            ex[name](np.zeros(4, "int64"))
    with pytest.raises(RuntimeCheckError, match="cannot allocate"):
        ex["zeros"]()


def test_constants_that_kernels_only_read_are_not_copied() -> None:
    gv, y = rx.GlobalVar("add_one"), rx.Var("y")
    literal = rx.const(X)
    main = function([], [(y, call_tir(gv, [literal], F2))], y)
    ex = compile(IRModule({gv: add_one(), "main": main}), relax_pipeline="legalize")
    assert "copy" not in ex.source.split("def main")[1]
    np.testing.assert_array_equal(ex["main"](), X + 1)


# ---- operators that run as they stand


@pytest.mark.rule("OP-12", "OP-14", "OP-15")
def test_operators_without_mathematics(build: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    x, s, z, p = rx.Var("x", F2), rx.Var("s"), rx.Var("z"), rx.Var("p")
    t, back = rx.Var("t"), rx.Var("back")
    ex = build(
        main=function(
            [x],
            [
                (s, op("shape_of", x)),
                (z, op("null_value")),
                (t, op("shape_to_tensor", s)),
                (back, op("tensor_to_shape", t)),
                (p, op("print", x, s, format="{} has shape {}")),
                (rx.Var("q"), op("print", rx.PrimValue(3), rx.StringImm("a"))),
            ],
            rx.Tuple((s, z, t, back, p)),
            pure=False,
        )
    )
    shape, null, as_tensor, again, unit = ex["main"](X)
    assert type(shape) is ShapeTuple
    assert shape == again == (2,)
    assert null is None
    assert as_tensor.tolist() == [2]
    assert as_tensor.dtype == np.int64
    assert unit == ()
    assert capsys.readouterr().out == "[1. 2.] has shape [2]\n3 a\n"


def test_assert_op_stops_the_program(build: Compile) -> None:
    c = rx.Var("c", tensor((), "bool"))
    check = op("assert_op", c, rx.PrimValue(3), format="it is {}")
    ex = build(main=function([c], [(rx.Var("u"), check)], c, pure=False))
    assert ex["main"](np.array(True))
    with pytest.raises(AssertionFailedError, match="Assertion Failed: it is 3") as caught:
        ex["main"](np.array(False))
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, RuntimeCheckError)


@pytest.mark.rule("OP-12")
@pytest.mark.parametrize("value", [ShapeTuple((1,)), 3, None])
def test_shape_of_takes_a_tensor(build: Compile, value: object) -> None:
    x = rx.Var("x")
    ex = build(main=function([x], [], op("shape_of", x)))
    with pytest.raises(RuntimeCheckError, match="shape_of takes a tensor, found"):
        ex["main"](value)


def test_closures_are_invoked_by_operators_too(build: Compile) -> None:
    f, x = rx.Var("f"), rx.Var("x")
    for name in ("invoke_closure", "invoke_pure_closure"):
        call = op(name, f, rx.Tuple((x, x)))
        ex = build(main=function([f, x], [], call, pure=False))
        sinfo = rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo())
        assert ex["main"](Closure(lambda a, b: (a, b), sinfo), 3) == (3, 3)


def test_call_pure_packed_is_a_call(build: Compile) -> None:
    register_func("test.twice", lambda v: 2 * v)
    x, y = rx.Var("x", F2), rx.Var("y")
    call = rx.Call(Op("relax.call_pure_packed"), (rx.ExternFunc("test.twice"), x), sinfo_args=(F2,))
    np.testing.assert_array_equal(build(main=function([x], [(y, call)], y))["main"](X), 2 * X)


@pytest.mark.rule("OP-16")
def test_operators_without_a_lowering_are_all_named(build: Compile) -> None:
    x = rx.Var("x", F2)
    body = rx.Tuple((op("no_such_op", x), op("another", x)))
    with pytest.raises(CompileError) as caught:
        build(main=function([x], [], body))
    text = str(caught.value)
    assert "operator relax.no_such_op has no lowering (in main)" in text
    assert "operator relax.another has no lowering" in text


# ---- modules


@pytest.mark.rule("TOP-1", "TOP-5", "SC-1", "SC-2")
def test_functions_call_each_other_whatever_their_order(build: Compile) -> None:
    even, odd = rx.GlobalVar("even"), rx.GlobalVar("odd")
    register_func("test.is_zero", lambda k: np.array(k == 0))
    register_func("test.minus_one", lambda k: k - 1)

    def parity(other: rx.GlobalVar, at_zero: int, name: str) -> rx.Function:
        k, c, r, d, rest = (rx.Var(v) for v in ("k", "c", "r", "d", "rest"))
        again = seq(rest, (d, packed_call("test.minus_one", k)), (rest, rx.Call(other, (d,))))
        branch = rx.If(c, seq(rx.PrimValue(at_zero)), again)
        bindings = [(c, packed_call("test.is_zero", k)), (r, branch)]
        return function([k], bindings, r, name=name, pure=False)

    ex = build(IRModule({even: parity(odd, 1, "even"), odd: parity(even, 0, "odd")}))
    assert [ex["even"](k) for k in range(4)] == [1, 0, 1, 0]


@pytest.mark.rule("SC-1")
def test_a_missing_global_function_is_named(build: Compile) -> None:
    call = rx.Call(rx.GlobalVar("gone"), ())
    with pytest.raises(CompileError, match="main uses the global function gone, which the module"):
        build(main=function([], [], call))


@pytest.mark.rule("TOP-6")
def test_a_global_function_is_a_value(build: Compile) -> None:
    x, gv = rx.Var("x", F2), rx.GlobalVar("other")
    other = function([x], [], x, name="other")
    f, y = rx.Var("f"), rx.Var("x", F2)
    main = function([y], [(f, gv)], rx.Tuple((f, rx.Call(f, (y,)))))
    closure, result = build(IRModule({gv: other, "main": main}))["main"](X)
    assert isinstance(closure, Closure)
    assert result is X
    assert closure(X) is X
    with pytest.raises(RuntimeCheckError, match=r"its rank \(ndim\) is 2"):
        closure(np.zeros((2, 2), "float32"))


def test_deep_recursion_ends_in_an_error_of_the_program(build: Compile) -> None:
    loop = rx.GlobalVar("loop")
    x = rx.Var("x")
    ex = build(IRModule({loop: function([x], [], rx.Call(loop, (x,)), name="loop")}))
    with pytest.raises(RuntimeCheckError, match="nest deeper than Python allows"):
        ex["loop"](1)


def test_names_that_python_keeps_for_itself_are_no_trouble(build: Compile) -> None:
    hints = ["class", "np", "rx", "x", "x", "größe", "1", "__a", "float32", "main", "print"]
    params = [rx.Var(h, F2) for h in hints]
    ex = build(
        main=function(
            params, [], rx.Tuple(tuple(params)), ret=rx.TupleStructInfo((F2,) * len(hints))
        )
    )
    arrays = [np.full(2, i, "float32") for i in range(len(hints))]
    assert all(a is b for a, b in zip(ex["main"](*arrays), arrays, strict=True))


# ---- what is left as it is: IR that no pipeline has seen


@pytest.mark.rule("MC-10", "RES-31")
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0.5, "float64"), (np.float32(-0.5), "float32"), (True, "bool"), (np.uint64(2**63), "uint64")],
)
def test_a_scalar_variable_holds_the_scalar_of_its_datatype(
    build: Compile, value: object, dtype: str
) -> None:
    p, x, y = tir.Var("p", dtype), rx.Var("x", rx.PrimStructInfo(value=tir.Var("q", dtype))), None
    as_param = rx.Var("x", rx.PrimStructInfo(value=p))
    cast = rx.MatchCast(y, x, rx.PrimStructInfo(value=p))
    for params, bindings in (([as_param], []), ([x], [cast])):
        found = build(main=function(params, bindings, rx.PrimValue(p)))["main"](value)
        assert found == value
        assert type(found) is type(value)


@pytest.mark.rule("EV-23", "EV-20")
def test_sizes_of_an_inner_sequence_end_with_it(build: Compile) -> None:
    k, x, y = size_var("k"), rx.Var("x"), rx.Var("y")
    cast = rx.MatchCast(rx.Var("a"), x, tensor((k,)))
    inner = rx.SeqExpr((rx.BindingBlock((cast,)),), x)
    steps = [(rx.Var("z"), inner), rx.MatchCast(rx.Var("b"), y, tensor((k,)))]
    ex = build(main=function([x, y], steps, rx.ShapeExpr((k,))))
    assert ex["main"](X, np.zeros(3, "float32")) == (3,)


@pytest.mark.rule("EV-9", "EV-11")
def test_a_closure_under_a_dataflow_var_holds_itself_and_no_other(build: Compile) -> None:
    x, f, g, r = rx.Var("x"), rx.DataflowVar("f"), rx.Var("g"), rx.Var("r")
    own = function([], [], f, name=None)
    main = function([x], [(f, own), (r, rx.Call(f, ()))], r, dataflow=True)
    assert isinstance(build(main=main)["main"](X), Closure)
    other = function([], [], rx.Call(f, ()), name=None)
    steps = [(f, own), (g, other), (r, rx.Call(g, ()))]
    with pytest.raises((RuntimeCheckError, CompileError), match="variable f is not bound here"):
        build(main=function([x], steps, r, dataflow=True))["main"](X)


@pytest.mark.rule("EV-15", "EV-17", "LEG-32")
def test_what_can_fail_is_evaluated_before_what_follows_it(build: Compile) -> None:
    seen: list[object] = []
    register_func("test.note", lambda v: seen.append(v) or v)
    n, m = size_var("n"), size_var("m")
    s = rx.Var("s", rx.ShapeStructInfo((n, m)))
    quotient, note = rx.PrimValue(tir.FloorDiv(n, m)), packed_call("test.note", rx.PrimValue(1))
    after_quotient = (packed_call("test.note", quotient, note), rx.Tuple((quotient, note)))
    for expr in after_quotient:
        with pytest.raises(RuntimeCheckError, match="division by zero"):
            build(main=function([s], [], expr, pure=False))["main"](ShapeTuple((3, 0)))
    with pytest.raises(UnknownPackedFuncError):
        build(main=function([s], [], packed_call("test.none", note), pure=False))["main"](
            ShapeTuple((3, 0))
        )
    assert seen == []
    negative = rx.Call(
        Op("relax.call_dps_packed"),
        (rx.ExternFunc("test.none"), rx.Tuple(())),
        sinfo_args=(tensor((n - 5,)),),
    )
    with pytest.raises(UnknownPackedFuncError):
        build(main=function([s], [], negative, pure=False))["main"](ShapeTuple((3, 0)))
    fill = prim_func(
        [buffer((size_var("k"),), "O"), size_var("v")], st.Evaluate(tir.IntImm("int32", 0)), "fill"
    )
    gv = rx.GlobalVar("fill")
    call = call_tir(gv, [], tensor((n - 5,)), [tir.FloorDiv(n, m)])
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        build(IRModule({gv: fill, "main": function([s], [], call)}))["main"](ShapeTuple((3, 0)))


@pytest.mark.rule("OP-2", "OP-5")
def test_what_was_said_to_be_a_shape_or_tuple_must_be_one(build: Compile) -> None:
    register_func("test.any", lambda value: value)
    gv, x, s = rx.GlobalVar("fill"), rx.Var("x"), rx.Var("s", rx.ShapeStructInfo(ndim=1))
    fill = prim_func([buffer((size_var("k"),), "O")], st.Evaluate(tir.IntImm("int32", 0)), "fill")
    out = rx.TensorStructInfo(s, "float32")
    steps = [(s, packed_call("test.any", x))]
    ex = build(
        IRModule({gv: fill, "main": function([x], steps, call_tir(gv, [], out), pure=False)})
    )
    assert ex["main"](ShapeTuple((3,))).shape == (3,)
    for wrong in (3, None, (3,)):
        with pytest.raises(RuntimeCheckError, match="expected a shape, found"):
            ex["main"](wrong)
    f, t = rx.Var("f"), rx.Var("t")
    ex = build(main=function([f, t], [], op("invoke_closure", f, t), pure=False))
    sinfo = rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo())
    pair = Closure(lambda a, b: (a, b), sinfo)
    assert ex["main"](pair, (1, 2)) == (1, 2)
    for unfit in (X, ShapeTuple((1, 2)), 3):
        with pytest.raises(RuntimeCheckError, match="the arguments are a tuple, found"):
            ex["main"](pair, unfit)


@pytest.mark.rule("LEG-15")
def test_that_a_call_is_pure_is_not_told_to_the_function(build: Compile) -> None:
    register_func("test.named", lambda *args, **named: (len(args), sorted(named)))
    x = rx.Var("x")
    call = rx.Call(rx.ExternFunc("test.named"), (x,), {"pure": True, "axis": 1})
    assert build(main=function([x], [], call))["main"](3) == (1, ["axis"])


@pytest.mark.rule("EV-2")
def test_a_kernel_that_calls_a_kernel_may_write_a_constant(build: Compile) -> None:
    a, b, i = buffer((2,), "A"), buffer((2,), "B"), size_var("i")
    zero, add, gv = tir.IntImm("int64", 0), rx.GlobalVar("add"), rx.GlobalVar("outer")
    steps = st.SeqStmt((st.BufferStore(a, a[i] + 1.0, (i,)), st.BufferStore(b, a[i], (i,))))
    inner = prim_func([a, b], st.For(i, zero, 2, st.ForKind.SERIAL, steps), "add")
    c, d = buffer((2,), "C"), buffer((2,), "D")
    outer = prim_func([c, d], st.Evaluate(tir.Call("void", add, (c.data, d.data))), "outer")
    main = function([], [], call_tir(gv, [rx.const(X)], F2))
    ex = build(IRModule({add: inner, gv: outer, "main": main}))
    for _ in range(2):
        np.testing.assert_array_equal(ex["main"](), X + 1)


def in_place(args: rx.Expr) -> IRModule:
    a, i, gv = buffer((2,), "A"), size_var("i"), rx.GlobalVar("bump")
    zero = tir.IntImm("int64", 0)
    body = st.For(i, zero, 2, st.ForKind.SERIAL, st.BufferStore(a, a[i] + 1.0, (i,)))
    call = rx.Call(Op("relax.call_tir_inplace"), (gv, args), {"inplace_indices": (0,)}, (F2,))
    params = [v for v in (args, *getattr(args, "fields", ())) if isinstance(v, rx.Var)]
    return IRModule({gv: prim_func([a], body, "bump"), "main": function(params, [], call)})


def test_a_field_of_a_tuple_can_be_an_output_in_place(build: Compile) -> None:
    ex = build(in_place(rx.Var("t", rx.TupleStructInfo((F2,)))))
    mine = X.copy()
    assert ex["main"]((mine,)) is mine
    np.testing.assert_array_equal(mine, X + 1)


@pytest.mark.rule("EV-2")
def test_a_constant_can_be_an_output_in_place(build: Compile) -> None:
    ex = build(in_place(rx.Tuple((rx.const(X),))))
    first, second = ex["main"](), ex["main"]()
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X + 1)
    assert not np.shares_memory(first, second)


@pytest.mark.rule("FN-11")
@pytest.mark.parametrize("count", [0, 2])
def test_a_kernel_takes_as_many_arguments_as_it_has_parameters(build: Compile, count: int) -> None:
    gv, t = rx.GlobalVar("add_one"), rx.Var("t", rx.TupleStructInfo((F2,) * count))
    args = (rx.Tuple((rx.const(X),) * count), t)
    for arg in args:
        params = [arg] if isinstance(arg, rx.Var) else []
        call = rx.Call(Op("relax.call_tir"), (gv, arg), sinfo_args=(F2,))
        ex = build(IRModule({gv: add_one(), "main": function(params, [], call)}))
        with pytest.raises(RuntimeCheckError, match=f"takes 2 arguments, found {count + 1}"):
            ex["main"](*[(X,) * count for _ in params])


def test_memory_that_cannot_be_written_is_refused(build: Compile) -> None:
    ex = build(in_place(rx.Tuple((rx.Var("x", F2),))))
    fixed = X.copy()
    fixed.flags.writeable = False
    for name in ("main", "bump"):
        with pytest.raises(RuntimeCheckError, match="bump: the memory of buffer A is read-only"):
            ex[name](fixed)

    @T.prim_func
    def fill(out: T.handle):
        Filled = T.match_buffer(out, (2,), "float32")
        Filled[0] = T.float32(1)

    with pytest.raises(RuntimeCheckError, match="fill: the memory of buffer Filled is read-only"):
        build(IRModule({"fill": fill}))["fill"](fixed)


@pytest.mark.parametrize(
    "format", ["{0.shape}", "{0[a]}", "{:d}", "{", "{1}", "{a}", "{:99999999999}"]
)
def test_a_format_that_does_not_fit_is_an_error_of_the_program(build: Compile, format: str) -> None:
    x = rx.Var("x")
    ex = build(main=function([x], [], op("print", x, format=format), pure=False))
    with pytest.raises(RuntimeCheckError, match="does not match its 1 value"):
        ex["main"](3)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(
    "call",
    [
        op("shape_of"),
        op("null_value", rx.PrimValue(1)),
        op("print", rx.PrimValue(1), colour="red"),
        op("print", rx.PrimValue(1), **{"format=exit(), b": "x"}),
        op("call_tir"),
        op("invoke_closure", rx.PrimValue(1)),
    ],
)
def test_operands_and_attributes_that_an_operator_does_not_have_are_refused(
    build: Compile, call: rx.Call
) -> None:
    with pytest.raises(CompileError, match=rf"{call.op.name}.* \(in main\)"):
        build(main=function([], [], call, pure=False))


def test_values_are_printed_with_the_settings_of_the_caller(build: Compile) -> None:
    """Code of users that writes them sees their context variables."""
    variable: ContextVar[str] = ContextVar("variable")
    seen = []

    class Shown:
        def __str__(self) -> str:
            seen.append((variable.get(), np.geterr()["over"]))
            return ""

    gv, x, y, z = rx.GlobalVar("power"), rx.Var("x", F2), rx.Var("y"), rx.Var("z")
    steps = [(z, call_tir(gv, [x], F2)), (rx.Var("u"), op("print", y))]
    mod = IRModule(
        {
            gv: elementwise((2,), lambda v: v * v, "power"),
            "main": function([x, y], steps, z, pure=False),
        }
    )
    variable.set("caller's")
    with np.errstate(over="warn"):
        build(mod)["main"](X, Shown())
    assert seen == [("caller's", "warn")]


@pytest.mark.parametrize(
    "sinfo",
    [
        rx.FuncStructInfo.opaque_func(),
        rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo()),
    ],
)
def test_a_function_with_the_struct_info_of_another_is_called_by_its_signature(
    build: Compile, sinfo: rx.FuncStructInfo
) -> None:
    x, y, gv = rx.Var("x"), rx.Var("y", F2), rx.GlobalVar("inner")
    inner = rx.Function((y,), seq(y), F2, struct_info=sinfo)
    ex = build(IRModule({gv: inner, "main": function([x], [], rx.Tuple((gv, rx.Call(gv, (x,)))))}))
    closure, result = ex["main"](X)
    assert result is X
    assert closure(X) is X
    assert closure.struct_info == rx.FuncStructInfo((F2,), F2)
