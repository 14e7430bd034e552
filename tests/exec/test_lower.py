"""What the generated text looks like."""

import ast
import inspect
import re
import traceback
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.api.compile import compile
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir import DataType, IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, stmt
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

N = size_var("n")
X = rx.Var("x", tensor((N, 2)))


def source_of(mod: IRModule | rx.Function, name: str = "main") -> str:
    """The text of one generated function, checks of arguments and docstring left out."""
    tree = ast.parse(compile(mod, "numpy", relax_pipeline=None).source)
    [found] = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return "\n".join(ast.unparse(s) for s in found.body[1:])


def chain(count: int) -> IRModule:
    """main(x) = x doubled `count` times, one kernel call after the other."""
    gv = rx.GlobalVar("double")
    bindings, last = [], X
    for i in range(count):
        var = rx.DataflowVar(f"lv{i}", tensor((N, 2)))
        bindings.append((var, call_tir(gv, [last], tensor((N, 2)))))
        last = var
    end = rx.Var("gv", tensor((N, 2)))
    main = function([X], [*bindings, (end, last)], end, ret=tensor((N, 2)), dataflow=True)
    return IRModule(
        {gv: elementwise((size_var("k"), 2), lambda v: v * 2.0, "double"), "main": main}
    )


def test_a_function_is_straight_python(golden: Callable[[str], None]) -> None:
    golden(source_of(chain(3)))


def test_a_result_that_surely_fits_is_not_checked_again() -> None:
    assert "result" not in source_of(function([X], [], X, ret=tensor((N, 2))))
    y = rx.Var("y")
    unsure = function([X, y], [], y, ret=tensor((N, 2)))
    assert "main_signature.result(y, n)" in source_of(unsure)


def test_tensors_die_after_their_last_use_in_branches_too() -> None:
    gv, c = rx.GlobalVar("double"), rx.Var("c", tensor((), "bool"))
    a, b, d, r = (rx.Var(name) for name in "abdr")
    call = call_tir(gv, [X], tensor((N, 2)))

    def arm(result: rx.Var, *bindings: tuple[rx.Var, rx.Expr]) -> rx.SeqExpr:
        made = tuple(rx.VarBinding(*binding) for binding in bindings)
        return rx.SeqExpr((rx.BindingBlock(made),), result)

    yes = arm(d, (b, call_tir(gv, [a], tensor((N, 2)))), (d, call_tir(gv, [b], tensor((N, 2)))))
    no = arm(d, (d, call_tir(gv, [a], tensor((N, 2)))))
    end = rx.Var("end")
    main = function(
        [X, c], [(a, call), (r, rx.If(c, yes, no)), (end, call_tir(gv, [r], tensor((N, 2))))], end
    )
    mod = IRModule({gv: elementwise((size_var("k"), 2), lambda v: v * 2.0, "double"), "main": main})
    text = source_of(mod)
    assert text.count("del b") == 1
    assert "\ndouble_unchecked(r, end)\n" in text
    assert re.search(r"\n    double_unchecked\(b, d\)\n    del b\n    r = d\n", text)
    assert "\ndel a\n" in text
    x = np.ones((3, 2), "float32")
    assert compile(mod, "numpy", relax_pipeline=None)["main"](x, np.array(True)).max() == 16
    assert compile(mod, "numpy", relax_pipeline=None)["main"](x, np.array(False)).max() == 8


def test_captured_variables_are_not_deleted() -> None:
    gv, f, a, y = rx.GlobalVar("double"), rx.Var("f"), rx.Var("a"), rx.Var("y")
    inner = function([], [], a, name=None)
    main = function(
        [X], [(a, call_tir(gv, [X], tensor((N, 2)))), (f, inner), (y, rx.Call(f, ()))], y
    )
    mod = IRModule({gv: elementwise((size_var("k"), 2), lambda v: v * 2.0, "double"), "main": main})
    text = source_of(mod)
    assert "del" not in text
    assert "y = f()" in text, "a local function that is only called needs no closure"
    assert compile(mod, "numpy", relax_pipeline=None)["main"](np.ones((1, 2), "float32")).max() == 2


def test_functions_of_one_text_may_use_the_same_local_names() -> None:
    a = function([X], [], X, name="a")
    b = function([rx.Var("x", tensor((N, 2)))], [], X.struct_info.shape, name="b")
    text = compile(module(a=a), "numpy", relax_pipeline=None).source
    assert "def a(x)" in text
    both = compile(module(a=a, b=function([rx.Var("x")], [], rx.PrimValue(1), name="b")), "numpy")
    assert "def a(x)" in both.source
    assert "def b(x)" in both.source
    assert b.attrs["global_symbol"] == "b"


def test_literal_sizes_are_written_in_place_and_odd_ones_evaluated() -> None:
    dims = (N * 2 + 1, tir.FloorDiv(N, tir.IntImm("int64", 2)), tir.Div(N, tir.IntImm("int64", 2)))
    text = source_of(function([X], [], rx.ShapeExpr(dims)))
    assert text.endswith(
        "return rx.ShapeTuple((rx.size(rx.size(n * 2) + 1), n // 2, rx.truncdiv(n, 2)))"
    )


def test_the_source_is_what_runs() -> None:
    ex = compile(chain(1), "numpy", relax_pipeline=None)
    function_ = ex["main"]._run
    assert inspect.getsource(function_) in ex.source
    with pytest.raises(RuntimeCheckError) as caught:
        function_(np.zeros((2, 3), "float32"))
    frames = traceback.extract_tb(caught.value.__traceback__)
    lines = [frame.line for frame in frames if frame.filename.startswith("<relaxpy")]
    assert lines == ["main_signature.arguments(x)"]


def test_a_whole_text_has_kernels_functions_and_datatypes() -> None:
    gv, w = rx.GlobalVar("mm"), rx.Var("w", tensor((2, 3)))
    main = function([X, w], [], call_tir(gv, [X, w], tensor((N, 3))))
    ex = compile(
        IRModule({gv: matmul(size_var("n"), 2, 3, "mm"), "main": main}),
        "numpy",
        relax_pipeline=None,
    )
    tree = ast.parse(ex.source)
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert names == ["mm_unchecked", "mm", "main"]
    assert "float32 = rx.dtype('float32')" in ex.source
    assert "np.matmul" in ex.source


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
@example('"""', "\\", "'''\"\"\"\n\\")
@example("\ud800", "\x00", "\r\n\u2028")
def test_texts_of_programs_never_break_out_of_the_generated_text(
    parameter: str, name: str, text: str
) -> None:
    x = rx.Var(parameter, tensor((tir.Var(parameter, "int64"),)))
    main = function([x], [], rx.Tuple((x, rx.StringImm(text))), name=name or "f")
    array = np.zeros(2, "float32")
    ex = compile(IRModule({name or "f": main}), "numpy", relax_pipeline=None)
    first, second = ex[name or "f"](array)
    assert first is array
    assert second == text


def test_one_constant_has_one_name() -> None:
    literal = rx.const(np.ones(2, "float32"))
    text = source_of(function([], [], rx.Tuple((literal, literal, rx.const(np.float32(2))))))
    assert text == "return (const.copy(), const.copy(), const_1.copy())"


def overflowing() -> IRModule:
    """exp of x, by a kernel that may warn."""
    gv = rx.GlobalVar("power")
    body = elementwise((size_var("k"), 2), intrin.exp, "power")
    main = function([X], [], call_tir(gv, [X], tensor((N, 2))))
    return IRModule({gv: body, "main": main})


def test_kernels_whose_arguments_are_known_to_fit_check_nothing() -> None:
    ex = compile(overflowing(), "numpy", relax_pipeline=None)
    tree = ast.parse(ex.source)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert list(functions) == ["power_unchecked", "power", "main"]
    assert ast.unparse(functions["power"]).endswith("return power_unchecked(A0, O)")
    assert not functions["power_unchecked"].decorator_list
    assert ast.unparse(functions["main"].decorator_list[0]) == "main_arguments.checked"
    assert ast.unparse(functions["power"].decorator_list[0]) == "power_signature.checked"
    huge = np.full((1, 2), 1000, "float32")
    np.testing.assert_array_equal(ex["main"](huge), np.inf)
    np.testing.assert_array_equal(ex["power"](huge, out := np.empty_like(huge)) or out, np.inf)
    with pytest.raises(RuntimeCheckError, match="power: O is float32"):
        ex["power"](huge, np.empty((1, 3), "float32"))


def test_functions_called_from_a_program_keep_the_settings_of_its_caller() -> None:
    mod = overflowing()
    gv = mod.get_global_var("power")
    seen = []

    def settings(x: object) -> object:
        seen.append(np.geterr()["over"])
        return x

    y, z, w = (rx.Var(name) for name in "yzw")
    call = rx.Call(rx.ExternFunc("test.settings"), (y,), sinfo_args=(tensor((N, 2)),))
    steps = [(v, call_tir(gv, [X], tensor((N, 2)))) for v in (y, w)]
    steps.insert(1, (z, call))
    mod["main"] = function([X], steps, rx.Tuple((z, w)), pure=False)
    register_func("test.settings", settings)
    try:
        with np.errstate(over="raise"):
            ex = compile(mod, "numpy", relax_pipeline=None)
            ex["main"](np.full((1, 2), 1000, "float32"))
    finally:
        remove_global_func("test.settings")
    assert seen == ["raise"]
    assert ex.source.count("    with np.errstate(all='ignore'):\n") == 2


def test_what_is_not_known_to_fit_is_checked() -> None:
    """The sizes of a cast tensor are known, those of one of any shape are not."""
    mod = overflowing()
    gv, y, z = mod.get_global_var("power"), rx.Var("y"), rx.Var("z", tensor((N, 2)))
    any_shape = rx.Var("a", rx.TensorStructInfo(None, DataType("float32"), ndim=2))
    steps = [
        (y, call_tir(gv, [any_shape], tensor((N, 2)))),
        rx.MatchCast(z, any_shape, tensor((N, 2))),
    ]
    mod["main"] = function([X, any_shape], steps, call_tir(gv, [z], tensor((N, 2))))
    text = source_of(mod)
    check = "(a.ndim == 2) and (type(y) is ndarray) and (y.dtype == float32) and (y.ndim == 2)"
    assert f"{check}):\n    call_of_power.arguments(a, y)\nk = a.shape[0]\n" in text
    assert text.count("call_of_power.arguments(a, y)\n") == 2
    assert "\npower_unchecked(a, y)\n" in text
    assert "\npower_unchecked(a, v)\n" in text
    main = compile(mod, "numpy", relax_pipeline=None)["main"]
    with pytest.raises(RuntimeCheckError, match="dimension 0 is 2, but k = 3"):
        main(np.zeros((2, 2), "float32"), np.zeros((3, 2), "float32"))


def test_a_kernel_that_writes_its_input_checks_what_it_is_given() -> None:
    gv, a, b = rx.GlobalVar("both"), buffer((2,), "A"), buffer((2,), "B")
    zero = tir.IntImm("int64", 0)
    stores = [stmt.BufferStore(x, tir.FloatImm("float32", 1.0), (zero,)) for x in (a, b)]
    x = rx.Var("x", tensor((2,)))
    main = function([x], [], call_tir(gv, [x], tensor((2,))))
    text = source_of(IRModule({gv: prim_func([a, b], stmt.SeqStmt(stores)), "main": main}))
    assert "\nboth(x, v)\n" in text


def test_programs_deeper_than_python_indents_are_refused() -> None:
    c, x = rx.Var("c", tensor((), "bool")), rx.Var("x", tensor((2,)))
    body = rx.SeqExpr((), x)
    for _ in range(105):
        r = rx.Var("r")
        chosen = rx.VarBinding(r, rx.If(c, body, rx.SeqExpr((), x)))
        body = rx.SeqExpr((rx.BindingBlock((chosen,)),), r)
    deep = rx.Function((c, x), body, None, True, {"global_symbol": "main"})
    with pytest.raises(CompileError, match="nest deeper than Python's 100 levels"):
        compile(deep, "numpy", relax_pipeline=None)
