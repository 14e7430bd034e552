"""What can be asked of the printer, and what it refuses."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import IRModule, Op, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import CommReducer
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata, script
from tests.counting import calls

MODULE = from_source(
    """
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = A[i] * T.float32(2.0)

        @R.function
        def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
            cls = Module
            y = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
            return y
    """
)


def text(body: str) -> str:
    return dedent(body).strip()


def test_names_and_prefixes_can_be_chosen():
    shown = MODULE.script(
        name="Net",
        ir_prefix="ir",
        relax_prefix="relax",
        tir_prefix="tir",
        module_alias="mod",
        indent_spaces=2,
        show_all_struct_info=False,
    )
    assert shown == text(
        """
        # from relaxpy.script import ir as ir, relax as relax, tir as tir

        @ir.ir_module
        class Net:
          @tir.prim_func(private=True)
          def double(A: tir.Buffer((4,), "float32"), B: tir.Buffer((4,), "float32")):
            for i in range(4):
              B[i] = A[i] * tir.float32(2.0)

          @relax.function
          def main(x: relax.Tensor((4,), dtype="float32")) -> relax.Tensor((4,), dtype="float32"):
            mod = Net
            y = relax.call_tir(mod.double, (x,), out_sinfo=relax.Tensor((4,), dtype="float32"))
            return y
        """
    )
    again = from_source(shown, {"ir": I, "relax": R, "tir": T})
    assert_structural_equal(MODULE, again)


def test_without_an_alias_functions_name_the_module():
    shown = MODULE.script(module_alias="")
    assert "R.call_tir(\n            Module.double" in shown
    assert "cls" not in shown
    assert_structural_equal(MODULE, from_source(shown))


def test_parts_can_say_what_their_variables_are():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x, y = rx.Var("x", Tensor((n, 2), "int8")), rx.Var("y", Tensor((n, m), "int8"))
    z = rx.Var("z", Tensor((n, 2), "int8"))
    pair = rx.Tuple([x, y, x])
    assert script(pair, verbose_expr=True).splitlines() == [
        "n = T.int64()",
        'x: R.Tensor((n, 2), dtype="int8")',
        "m = T.int64()",
        'y: R.Tensor((n, m), dtype="int8")',
        "(x, y, x)",
    ]
    assert script(pair) == "(x, y, x)"
    block = rx.BindingBlock([rx.VarBinding(z, rx.Call(Op("relax.exp"), [x]))])
    assert script(block, verbose_expr=True).splitlines() == [
        "n = T.int64()",
        'x: R.Tensor((n, 2), dtype="int8")',
        'z: R.Tensor((n, 2), dtype="int8") = R.exp(x)',
    ]
    sinfo = rx.ShapeStructInfo((n, 4))
    assert script(sinfo, verbose_expr=True) == "n = T.int64()\nR.Shape([n, 4])"
    assert script(MODULE, verbose_expr=True) == script(MODULE)


def test_parts_of_kernels_can_say_what_they_take_from_around():
    n, i = tir.Var("n", "int32"), tir.Var("i", "int32")
    a, b = decl_buffer((n, 4), "float32", "A"), decl_buffer((4,), "int8", "A")
    store = stmt.BufferStore(a, a[i, 0] + 1.0, [i, n - 1])
    assert script(store, verbose_expr=True).splitlines() == [
        "i = T.int32()",
        "n = T.int32()",
        "A = T.Buffer((n, 4))",
        "A[i, n - 1] = A[i, 0] + T.float32(1.0)",
    ]
    assert script(store) == "A[i, n - 1] = A[i, 0] + T.float32(1.0)"
    loop = stmt.For(i, 0, n, 0, stmt.BufferStore(b, ops.const(0, "int8"), [i]))
    assert script(loop, verbose_expr=True).splitlines() == [
        "n = T.int32()",
        'A = T.Buffer((4,), "int8")',
        "for i in range(n):",
        "    A[i] = T.int8(0)",
    ]
    over = stmt.DeclBuffer(decl_buffer((4,), "int8", "C", data=b.data), stmt.Evaluate(b[0]))
    assert script(over, verbose_expr=True).splitlines() == [
        'A = T.Buffer((4,), "int8")',
        'with T.decl_buffer((4,), "int8", data=A.data) as C:',
        "    T.evaluate(A[0])",
    ]
    assert script(a, verbose_expr=True).splitlines() == [
        "n = T.int32()",
        "A = T.Buffer((n, 4))",
        "A",
    ]
    assert script(a) == "A"
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    reducer = CommReducer([x], [y], [x * y], [ops.const(1)])
    assert script(reducer, verbose_expr=True) == "T.comm_reducer(lambda x, y: x * y, [1])"
    moved = IndexMap.from_func(lambda i, j: (j, i))
    assert script(moved, verbose_expr=True) == "T.index_map(lambda i, j: (j, i))"


def test_the_name_of_a_lone_function_can_be_chosen():
    func = MODULE["double"]
    assert "def main(" in func.script()
    assert "def twice(" in func.script(name="twice")
    public = func.with_attr("global_symbol", "f")
    assert "@T.prim_func\ndef f(" in public.script()
    renamed = public.script(name="g")
    assert "@T.prim_func\ndef g(" in renamed
    assert 'T.func_attr({"global_symbol": "f"})' in renamed


@pytest.mark.parametrize("width", [40, 60, 100, 1000])
def test_any_width_reads_back(width: int):
    shown = MODULE.script(width=width)
    assert_structural_equal(MODULE, from_source(shown))
    if width >= 60:
        assert max(map(len, shown.split("\n"))) <= max(width, 61)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"show_metadata": True}, "no option 'show_metadata'"),
        ({"int_dtype": "int64"}, "no option 'int_dtype'"),
        ({"syntax_sugar": 1}, "syntax_sugar is True or False"),
        ({"indent_spaces": 0}, "indent_spaces is a positive integer"),
        ({"indent_spaces": "4"}, "indent_spaces is a positive integer"),
        ({"width": True}, "width is a positive integer"),
        ({"name": "my module"}, "name is a Python name"),
        ({"tir_prefix": ""}, "tir_prefix is a Python name"),
        ({"module_alias": "1"}, "module_alias is a Python name"),
        ({"name": "class"}, "name is a Python name"),
        ({"relax_prefix": "ﬁ"}, "relax_prefix is a Python name"),
        ({"tir_prefix": "R"}, "differ from each other, found I, R, R, cls"),
        ({"name": "R"}, "differ from each other, found I, T, R, cls, R"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, object], message: str):
    with pytest.raises(MisuseError, match=message) as caught:
        MODULE.script(**options)
    assert isinstance(caught.value, ValueError)


def test_a_close_option_is_suggested():
    with pytest.raises(MisuseError, match="did you mean 'show_meta'"):
        MODULE.script(show_mets=True)


# --- large constants


WEIGHTS = rx.const(np.linspace(-1, 1, 40).reshape(4, 10), "float32")


def with_weights() -> rx.Function:
    x = rx.Var("x", Tensor((4,)))
    y, z = rx.Var("y", Tensor((4, 10))), rx.Var("z", Tensor((4, 10)))
    block = rx.BindingBlock([rx.VarBinding(y, WEIGHTS), rx.VarBinding(z, WEIGHTS)])
    body = rx.SeqExpr([block], rx.Tuple([y, z, rx.const(1)]))
    sinfo = rx.TupleStructInfo([Tensor((4, 10)), Tensor((4, 10)), Tensor((), "int32")])
    return rx.Function([x], body, sinfo, attrs={"global_symbol": "main"})


def test_large_constants_stand_beside_the_text():
    func = with_weights()
    shown = func.script(show_all_struct_info=False)
    assert 'y = metadata["relax.expr.Constant"][0]' in shown
    assert 'z = metadata["relax.expr.Constant"][0]' in shown
    assert 'return (y, z, R.const(1, "int32"))' in shown
    assert shown.endswith(
        "\n\n# Metadata omitted. Use show_meta=True in script() method to show it."
    )
    beside = metadata(func)
    assert beside == {"relax.expr.Constant": [WEIGHTS]}
    again = from_source(shown, {"R": R, "T": T, "metadata": beside})
    assert_structural_equal(func, again)


EMPTY_KERNEL = from_source(
    "@T.prim_func\ndef main(A: T.Buffer((4,), 'float32')):\n    T.evaluate(0)"
)


def free_values() -> dict[str, object]:
    """Values with variables that a function does not declare."""
    n, y = tir.Var("n", "int64"), rx.Var("y", Tensor((4,)))
    return {
        "variable": n,
        "expression": n + 1,
        "list": (n, 2),
        "table": {"a": (n,)},
        "shape": rx.ShapeExpr([n]),
        "struct info": rx.TensorStructInfo([n], "float32"),
        "tensor": y,
        "function": rx.GlobalVar("g"),
        "call": rx.Call(Op.get("relax.negative"), [y]),
        "kernel": MODULE["double"],
        "buffer": decl_buffer((n,)),
    }


@pytest.mark.parametrize("func", [with_weights(), EMPTY_KERNEL], ids=["graph", "kernel"])
@pytest.mark.parametrize("kind", list(free_values()))
def test_attributes_with_free_variables_stand_beside_the_text(kind, func) -> None:
    func = func.with_attr("k", free_values()[kind])
    names = {"R": R, "T": T, "metadata": metadata(func)}
    again = from_source(func.script(), names)
    assert '"k": metadata["' in func.script()
    assert_structural_equal(func, again)


def test_attributes_with_variables_of_the_function_stand_in_the_text():
    n = tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo([n], "float32"))
    body = rx.SeqExpr([], x)
    attrs = {"global_symbol": "main", "k": (n + 1, x)}
    func = rx.Function([x], body, x.struct_info, attrs=attrs)
    assert '"k": [n + T.int64(1), x]' in func.script()
    assert_structural_equal(func, from_source(func.script()))


def test_large_constants_can_be_written_out():
    func = with_weights()
    shown = func.script(show_meta=True)
    assert_structural_equal(func, from_source(shown))
    head, _, rest = shown.partition("\n\nmetadata = ")
    table, _, body = rest.partition("\n\n@R.function")
    assert head == "# from relaxpy.script import relax as R, tir as T"
    [constant] = eval(table, {"R": rx})["relax.expr.Constant"]
    assert_structural_equal(constant, WEIGHTS)
    assert 'metadata["relax.expr.Constant"][0]' in body
    assert "Metadata omitted" not in shown
    assert max(map(len, shown.split("\n"))) <= 100


def test_what_has_no_text_stands_beside_it_too():
    marker = object()
    func = rx.Function([], rx.const(1), attrs={"marker": marker})
    assert 'R.func_attr({"marker": metadata["object"][0]})' in func.script()
    assert metadata(func) == {"object": [marker]}


# --- fragments


X = rx.Var("x", Tensor((4,)))


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (rx.Call(Op("relax.made_up"), (X,), {"axis": 1}), "R.made_up(x, axis=1)"),
        (rx.Call(rx.GlobalVar("f"), (X,)), "f(x)"),
        (rx.Call(rx.Call(rx.Var("f"), (X,)), (X,)), "f(x)(x)"),
        (rx.TupleGetItem(rx.Tuple([X, X]), 1), "R.TupleGetItem((x, x), 1)"),
        (rx.VarBinding(rx.Var("y"), X), "y = x"),
        (rx.MatchCast(None, X, Tensor((4,))), 'R.match_cast(x, R.Tensor((4,), dtype="float32"))'),
        (
            rx.DataflowBlock([rx.VarBinding(rx.Var("y"), X)]),
            "with R.dataflow():\n    y = x\n    R.output(y)",
        ),
        (
            rx.If(rx.Var("c"), X, rx.Call(rx.Var("f"), ())),
            "if c:\n    v = x\nelse:\n    v = f()\nv",
        ),
        (
            rx.Tuple([rx.SeqExpr([rx.BindingBlock([rx.VarBinding(rx.Var("y"), X)])], X)]),
            "y = x\n(x,)",
        ),
        (stmt.SeqStmt([]), "pass"),
        (stmt.IfThenElse(tir.Var("c", "bool"), stmt.Evaluate(1)), "if c:\n    T.evaluate(1)"),
        (
            stmt.AssertStmt(True, "no", stmt.Evaluate(1)),
            'with T.Assert(T.bool(True), "no"):\n    T.evaluate(1)',
        ),
        (
            IRModule(),
            "# from relaxpy.script import ir as I\n\n@I.ir_module\nclass Module:\n    pass",
        ),
        (Tensor((4,)), 'R.Tensor((4,), dtype="float32")'),
        (ops.const(1), "1"),
    ],
)
def test_parts_of_programs_are_printed_as_they_stand_in_one(node, shown: str):
    assert script(node) == shown


@pytest.mark.parametrize(
    "node",
    [
        rx.Call(Op("relax.add"), ()),
        rx.Call(Op("relax.concat"), (X,)),
        rx.Call(Op("relax.call_tir"), (X, X), {"what": object()}, [rx.ObjectStructInfo()]),
        stmt.Evaluate(tir.Call("int32", "tir.ret", ())),
        rx.Function([rx.Var("t", Tensor(rx.Var("s")))], X),
        rx.FuncStructInfo(None, rx.ObjectStructInfo()),
    ],
)
def test_malformed_nodes_are_shown_without_an_error(node):
    assert str(node)
    assert set(node._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_expressions_inside_expressions_keep_their_order():
    func = rx.Function([rx.Var("a")], rx.Var("b"))
    branches = rx.If(rx.Var("c"), X, X)
    assert str(rx.Tuple([branches, rx.Call(func, (X,)), branches])) == text(
        """
        if c:
            v = x
        else:
            v = x

        @R.function
        def func(a: R.Object):
            return b

        (v, func(x), v)
        """
    )


def test_statements_that_end_before_their_suite_are_put_in_with():
    k = tir.Var("k")
    a = decl_buffer((4,), "float32", "A")
    one = stmt.LetStmt(k, ops.const(1), stmt.BufferStore(a, 1.0, (k,)))
    two = stmt.AttrStmt(
        a, "key", ops.const(2), stmt.DeclBuffer(replace(a, name="B"), stmt.Evaluate(0))
    )
    three = stmt.Allocate(
        a.data, "float32", (ops.const(4),), ops.const(True), stmt.Evaluate(0), {"n": 1}
    )
    func = PrimFunc([a], stmt.SeqStmt([one, two, one]), attrs={"global_symbol": "main"})
    assert func.script() == text(
        """
        # from relaxpy.script import tir as T

        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            with T.LetStmt(1) as k:
                A[k] = T.float32(1.0)
            with T.attr(A, "key", 2):
                B = T.decl_buffer((4,), data=A.data)
                T.evaluate(0)
            k: T.int32 = 1
            A[k] = T.float32(1.0)
        """
    )
    assert str(three) == text(
        """
        with T.allocate([4], "float32", "global", annotations={"n": 1}) as A:
            T.evaluate(0)
        """
    )


def chain(count: int) -> rx.Function:
    bindings: list[rx.VarBinding] = []
    last = X
    for _ in range(count):
        new = rx.Var("lv", Tensor((4,)))
        bindings.append(rx.VarBinding(new, rx.Call(Op("relax.add"), (last, last))))
        last = new
    return rx.Function([X], rx.SeqExpr([rx.BindingBlock(bindings)], last))


def test_the_work_grows_with_the_program():
    few, many = chain(500), chain(2000)
    few.script()
    assert calls(many.script) < 4.4 * calls(few.script)
    assert many.script().count("\n") > 2000
