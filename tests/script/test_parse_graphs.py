"""Graph functions as text become the bindings they describe."""

import textwrap
from typing import Annotated

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import ParseError, RelaxpyWarning, StructInfoError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import ShapeStructInfo, TensorStructInfo, TupleStructInfo
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source, relax as R, tir as T
from tests.ir.relax.graphs import bindings
from tests.script.marked import check_marks

UNIT = TupleStructInfo(())


def graph(text: str) -> rx.Function:
    func = from_source(textwrap.dedent(text))
    assert isinstance(func, rx.Function)
    assert_structural_equal(from_source(func.script()), func)
    return func


def names(func: rx.Expr) -> list[str]:
    return [b.var.name_hint for b in bindings(func) if b.var is not None]


@R.function
def decorated(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", "m"])) -> R.Shape(["n", 4]):
    """A docstring is no statement."""
    R.func_attr({"relax.force_pure": True})
    with R.dataflow():
        lv = R.shape_of(x)
        gv = R.match_cast(lv, R.Shape([T.int64(2), 4])) if False else lv
        R.output(gv)
    return gv


@pytest.mark.rule("AST-11", "DER-43")
def test_a_decorated_function_is_a_relax_function() -> None:
    assert isinstance(decorated, rx.Function)
    assert dict(decorated.attrs) == {"relax.force_pure": True, "global_symbol": "decorated"}
    assert decorated.is_pure
    n = decorated.params[0].struct_info.get_shape()[0]  # type: ignore[union-attr,index]
    assert isinstance(n, tir.Var)
    assert (n.name, n.dtype) == ("n", "int64")
    assert decorated.ret_struct_info == ShapeStructInfo([n, 4])
    assert decorated.params[0].span is not None
    assert decorated.params[0].span.file == __file__


@pytest.mark.rule("SC-17")
def test_a_parameter_may_be_the_shape_of_another_before_it() -> None:
    func = from_source("""
@R.function
def main(x: R.Tensor(s, "float32"), s: R.Shape(ndim=2)):
    return x
""")
    sinfo = func.params[0].struct_info
    assert isinstance(sinfo, TensorStructInfo)
    assert sinfo.shape is func.params[1]
    assert sinfo.ndim == 2


@pytest.mark.rule("DER-15")
def test_a_parameter_without_annotation_is_any_object() -> None:
    func = graph("@R.function\ndef main(x):\n    return x\n")
    assert func.params[0].struct_info == rx.ObjectStructInfo()


def test_every_annotation() -> None:
    func = graph("""
        @R.function
        def main(
            a: R.Tensor, b: R.Tensor("int8"), c: R.Tensor(ndim=2), d: R.Tensor((), "float32"),
            e: R.Shape, f: R.Shape(ndim=3), g: R.Shape([1, "n"]), h: R.Prim("int64"),
            i: R.Object, j: R.Object(), k: R.Tuple, l: R.Tuple(R.Tensor, R.Shape([2])),
            m: R.Tuple([R.Tensor]), o: R.Callable, p: R.Callable((R.Tensor,), R.Tensor, True),
            q: R.Callable((R.Tensor(("k",)),), R.Tensor(("k",)), False), r: None,
        ):
            return a
    """)
    sinfos = [p.struct_info for p in func.params]
    assert sinfos[0] == TensorStructInfo(dtype="")
    assert sinfos[1] == TensorStructInfo(dtype="int8")
    assert sinfos[2] == TensorStructInfo(dtype="", ndim=2)
    assert sinfos[3] == TensorStructInfo((), "float32")  # type: ignore[arg-type]
    assert sinfos[4] == ShapeStructInfo()
    assert sinfos[5] == ShapeStructInfo(ndim=3)
    assert sinfos[7] == rx.PrimStructInfo("int64")
    assert sinfos[8] == sinfos[9] == rx.ObjectStructInfo()
    assert sinfos[10] == sinfos[16] == UNIT
    assert sinfos[11] == TupleStructInfo([TensorStructInfo(dtype=""), ShapeStructInfo([2])])
    assert sinfos[12] == TupleStructInfo([TensorStructInfo(dtype="")])
    assert sinfos[13] == rx.FuncStructInfo.opaque_func()
    assert isinstance(sinfos[15], rx.FuncStructInfo)
    assert not sinfos[15].purity
    assert sinfos[15].params is not None
    assert sinfos[15].params[0] == sinfos[15].ret


def test_the_spelling_that_type_checkers_take() -> None:
    @R.function
    def f(x: Annotated[R.Tensor, ("n", 4), "float32"]) -> Annotated[R.Tensor, ("n", 4), "float32"]:
        return x

    assert f.ret_struct_info == f.params[0].struct_info
    assert f.params[0].struct_info.dtype == "float32"


@pytest.mark.rule("SC-10", "SC-9")
def test_binding_a_name_again_makes_a_new_variable() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            x = R.shape_of(x)
            x = (x, x)
            return x
    """)
    first, second = bindings(func)
    assert first.var is not second.var
    assert first.value.args[0] is func.params[0]  # type: ignore[union-attr]
    assert isinstance(func.body, rx.SeqExpr)
    assert func.body.body is second.var


def test_what_is_bound_and_what_stays_python() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            size = [4, 5]
            dtype = "float32"
            a = 1
            b = True
            c = 1.5
            d = ()
            e = (x, x)
            f = n + 1
            g = R.tuple(x, 2)
            h = R.const([1, 2], "int8")
            i = R.prim_value(n)
            j = R.str("s")
            k = R.dtype(dtype)
            l = R.shape([n, size[0]])
            o = x
            return (l, 7, "s")
    """)
    values = {b.var.name_hint: b.value for b in bindings(func) if b.var is not None}
    assert set(values) == set("abcdefghijklo")
    assert [values[v].struct_info.dtype for v in "abc"] == ["int32", "bool", "float32"]  # type: ignore[union-attr]
    assert isinstance(values["f"], rx.PrimValue)
    assert isinstance(values["h"], rx.Constant)
    assert values["h"].data.tolist() == [1, 2]
    assert isinstance(values["o"], rx.Var)
    assert values["d"].struct_info == UNIT


@pytest.mark.rule("AST-9")
def test_tuples_are_taken_apart() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,)), t: R.Tuple(R.Shape([1]), R.Shape([2]), R.Shape([3]))):
            a, b, _ = t
            c, *d = (x, t, a)
            return (a, c, d)
    """)
    assert names(func) == ["a", "b", "_", "c", "d"]


@pytest.mark.rule("SC-7", "SC-8", "NF-10")
def test_outputs_of_a_dataflow_block_are_plain_variables() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.shape_of(x)
                b = (a, x)
                b = (b, x)
                R.output(b)
            return b
    """)
    kinds = [type(b.var).__name__ for b in bindings(func)]
    assert kinds == ["DataflowVar", "DataflowVar", "Var"]
    assert isinstance(func.body, rx.SeqExpr)
    assert [type(b).__name__ for b in func.body.blocks] == ["DataflowBlock"]


def test_a_return_in_a_dataflow_block_is_its_output() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.shape_of(x)
                return a
    """)
    assert type(bindings(func)[0].var) is rx.Var


@pytest.mark.rule("AST-19", "SC-13", "DER-24", "DER-27", "WF-5a")
def test_match_cast_with_and_without_a_variable() -> None:
    func = graph("""
        @R.function
        def main(x: R.Object):
            n, m = T.int64(), T.int64()
            y = R.match_cast(x, R.Tensor((n, m), "float32"))
            R.match_cast(x, R.Tensor((m, n), "float32"))
            z: R.Tensor(ndim=2) = R.match_cast(x, R.Tensor((n, m), "float32"))
            return R.shape([n, m])
    """)
    first, second, third = bindings(func)
    assert isinstance(first, rx.MatchCast)
    assert first.var is not None
    assert first.var.struct_info == first.struct_info
    assert second.var is None
    assert third.var is not None
    assert third.var.struct_info == TensorStructInfo(dtype="", ndim=2)


@pytest.mark.rule("AST-13", "DER-10", "NF-7", "LEG-25")
def test_an_if_gives_what_both_branches_bind_last() -> None:
    func = graph("""
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor((4,), "int8"), y: R.Tensor((5,), "int8")
        ):
            if c:
                a = (x, x)
                r = a[0]
            else:
                if c:
                    r = x
                else:
                    r = y
            return r
    """)
    [choice] = bindings(func)
    assert choice.var is not None
    assert choice.var.name_hint == "r"
    assert choice.var.struct_info == TensorStructInfo(dtype="int8", ndim=1)
    assert isinstance(choice.value, rx.If)
    assert names(choice.value.true_branch) == ["a", "r"]
    assert names(choice.value.false_branch) == ["r"]


@pytest.mark.rule("SC-11")
def test_a_name_bound_in_a_branch_keeps_its_old_meaning_after_it() -> None:
    func = graph("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                x = R.shape_of(x)
                r = x
            else:
                r = R.shape([4])
            return (x, r)
    """)
    assert isinstance(func.body, rx.SeqExpr)
    assert isinstance(func.body.body, rx.Tuple)
    assert func.body.body.fields[0] is func.params[1]


def test_a_condition_of_python_chooses_at_once() -> None:
    flag = True

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        if flag:
            y = R.shape_of(x)
        return y

    assert names(f) == ["y"]


@pytest.mark.rule("DER-19", "DER-20")
def test_annotations_of_bindings_are_kept() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y: R.Tensor(ndim=1) = x
            return y
    """)
    [binding] = bindings(func)
    assert binding.var is not None
    assert binding.var.struct_info == TensorStructInfo(dtype="", ndim=1)
    with pytest.warns(RelaxpyWarning, match="may not fit"):
        from_source(
            "@R.function\ndef f(x: R.Tensor('int8', ndim=1)):\n"
            "    y: R.Tensor((4,), 'int8') = x\n    return y\n"
        )


@pytest.mark.rule("PU-11", "OP-15")
def test_calls_that_give_unit_stand_alone_in_impure_functions() -> None:
    func = graph("""
        @R.function(pure=False)
        def main(x: R.Tensor):
            R.print(x)
            return R.shape_of(x)
    """)
    assert not func.is_pure
    assert bindings(func)[0].value.struct_info == UNIT


@pytest.mark.rule("AST-13", "PU-11")
def test_a_branch_may_end_with_a_dataflow_block() -> None:
    func = graph(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    y = R.abs(a)
                    R.output(y)
            else:
                with R.dataflow():
                    y = R.log(x)
                    R.output(y)
            return y
        """
    )
    assert names(func) == ["y"]
    numbers = np.array([1.0, 2.0, 3.0, 4.0], "float32")
    for flag, expected in ((True, np.exp(numbers)), (False, np.log(numbers))):
        np.testing.assert_allclose(func(numbers, np.bool_(flag)), expected, rtol=1e-6)


def test_calls_that_give_unit_end_branches() -> None:
    plain = graph("""
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            if c:
                R.print(x)
                R.print(format="yes")
            elif R.logical_not(c):
                R.print(x, format="no {}")
            else:
                R.print()
            return x
    """)
    bound = graph("""
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            if c:
                a = R.print(x)
                _ = R.print(format="yes")
            else:
                d = R.logical_not(c)
                if d:
                    _ = R.print(x, format="no {}")
                else:
                    _ = R.print()
            return x
    """)
    assert_structural_equal(plain, bound)
    assert_structural_equal(from_source(plain.script()), plain)


@pytest.mark.rule("AST-13", "PU-11")
def test_a_branch_that_ends_with_a_value_binds_it() -> None:
    for yes, no, message in (
        ("R.abs(x)", "R.abs(x)", "the value of this call is not used"),
        ("R.print(x)", "y = R.abs(x)", "the branches bind '_' and 'y' last"),
    ):
        with pytest.raises(ParseError, match=message):
            from_source(
                "@R.function(pure=False)\ndef f(c: R.Tensor((), 'bool'), x: R.Tensor):\n"
                f"    if c:\n        {yes}\n    else:\n        {no}\n    return x\n"
            )


@pytest.mark.rule("DER-29", "PU-13", "OP-9")
def test_packed_functions_are_called_by_name() -> None:
    func = graph("""
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.call_packed("my.f", x, 1, sinfo_args=R.Tensor((4,), "float32"))
            b = R.call_pure_packed("my.g", a, sinfo_args=[R.Shape([2])])
            f = R.ExternFunc("my.h")
            c = f(a)
            d = R.call_dps_packed("my.k", (a,), out_ty=R.Tensor((4,), "int8"))
            e = R.call_pure_packed("my.g", a, ty_args=R.Tensor((2,), "int8"))
            return (a, b, d, e)
    """)
    values = {b.var.name_hint: b.value.struct_info for b in bindings(func) if b.var is not None}
    assert values["a"] == TensorStructInfo((4,), "float32")  # type: ignore[arg-type]
    assert values["b"] == ShapeStructInfo([2])
    assert values["c"] == rx.ObjectStructInfo()
    assert values["d"] == TensorStructInfo((4,), "int8")  # type: ignore[arg-type]
    assert values["e"] == TensorStructInfo((2,), "int8")  # type: ignore[arg-type]


@pytest.mark.rule("SC-15", "AST-23")
def test_a_local_function_sees_the_shape_variables_around_it() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            @R.function
            def inner(y: R.Tensor(("n",), "float32"), z: R.Tensor(("m",), "float32")):
                return (x, z)
            return inner(x, x)
    """)
    n = func.params[0].struct_info.get_shape()[0]  # type: ignore[union-attr,index]
    inner = bindings(func)[0].value
    assert isinstance(inner, rx.Function)
    assert "global_symbol" not in inner.attrs
    assert inner.params[0].struct_info.get_shape()[0] is n  # type: ignore[union-attr,index]
    assert inner.params[1].struct_info.get_shape()[0] is not n  # type: ignore[union-attr,index]


@pytest.mark.rule("WF-8a", "SC-8")
@pytest.mark.parametrize(
    ("param", "body"), [("f", "return R.add(f, f)"), ("x", "f = R.add(x, x)\n            return f")]
)
def test_a_local_function_whose_variable_has_its_name_is_not_recursive(param, body) -> None:
    func = from_source(f"""
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        @R.function
        def f({param}: R.Tensor((2,), "float32")):
            {body}
        return f(x)
    """)
    x = np.ones(2, "float32")
    np.testing.assert_array_equal(relaxpy.compile(func)["main"](x), x + x)


@pytest.mark.rule("SC-4", "DER-21")
def test_a_local_function_may_call_itself() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            @R.function
            def loop(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
                if c:
                    r = loop(y)
                else:
                    r = y
                return r
            return loop(x)
    """)
    assert names(func)[0] == "loop"
    assert isinstance(func.struct_info, rx.FuncStructInfo)
    assert func.struct_info.ret == func.params[0].struct_info


def test_a_function_may_call_itself() -> None:
    func = from_source("""
@R.function
def f(x: R.Tensor(("n",))) -> R.Tensor(("n",)):
    return f(x)
""")
    [binding] = bindings(func)
    assert isinstance(binding.value, rx.Call)
    assert isinstance(binding.value.op, rx.GlobalVar)


def test_python_around_a_function_is_used_while_it_is_read() -> None:
    weights = np.arange(4, dtype="int8")
    count = 3

    def twice(value: rx.Expr) -> rx.Expr:
        return rx.Tuple((value, value))

    @R.function
    def f(x: R.Tensor((count, "n"), "float32")):
        w = R.const(weights)
        y = twice(w)
        z = [R.shape([i, i]) for i in range(count)]
        return (y, z[2], f"{count}")

    body = f.body.body
    assert str(body.fields[2].value) == "3"
    assert bindings(f)[0].value.data.tolist() == [0, 1, 2, 3]


def test_an_expression_inside_another_is_bound_with_its_own_position() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.tuple(R.shape_of(x), x)
            return y
    """)
    first, _ = bindings(func)
    assert first.value.span is not None
    assert (first.value.span.column, first.value.span.end_column) == (17, 30)


@pytest.mark.rule("RES-59")
def test_a_private_function_has_no_global_symbol() -> None:
    func = graph("@R.function(private=True)\ndef main(x: R.Tensor):\n    return x\n")
    assert "global_symbol" not in func.attrs


def test_checks_can_be_left_out() -> None:
    text = "@R.function\ndef main(x: R.Tensor):\n    m = T.int64()\n    return R.shape([m])\n"
    with pytest.raises(ValueError, match="bound nowhere"):
        from_source(text)
    assert isinstance(from_source(text, check_well_formed=False), rx.Function)
    loose = text.replace("R.function", "R.function(check_well_formed=False)", 1)
    assert isinstance(from_source(loose), rx.Function)


@pytest.mark.rule("DER-45")
def test_a_result_that_does_not_fit_is_refused_while_reading() -> None:
    with pytest.raises(StructInfoError, match="dimension 1: 5 is not 6"):

        @R.function
        def f(x: R.Tensor(("n", 5), "float32")) -> R.Tensor(("n", 6), "float32"):
            return x


def test_operators_of_python_are_operators_of_relax() -> None:
    func = graph("""
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32"),
            i: R.Tensor((4,), "int8"),
        ):
            a = -(x + y) * 2.0 - 1 / x
            b = x @ y
            c = a < y
            d = i // i ** i
            return x >= 0.5
    """)
    ops = [b.value.op.name for b in bindings(func) if isinstance(b.value, rx.Call)]
    assert ops == [
        *("relax.add", "relax.negative", "relax.multiply", "relax.divide", "relax.subtract"),
        *("relax.matmul", "relax.less", "relax.power", "relax.floor_divide"),
        "relax.greater_equal",
    ]


@pytest.mark.rule("NF-17")
def test_the_truth_of_a_relax_value_is_not_known_while_reading() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "int8")):
            a = x and y
            #   ^ the truth value of Var 'x' is not known at parse time
            # hint: for tensors write R.logical_and(x, y)
            b = not x
            #       ^ the truth value of Var 'x' is not known at parse time
            # hint: for tensors write R.logical_not(x)
            c = x if y else x
            #        ^ the truth value of Var 'y' is not known at parse time
            # hint: write an if statement with an else, or R.where(y, x, x)
            d = x & x
            #   ^^^^^ & is for Booleans or for integers, found float32 and float32
            # hint: write R.logical_and(x, x), or R.bitwise_and(x, x) for the bits of integers
            e = x % x
            #   ^^^^^ % leaves the sign of the remainder open
            # hint: use R.floor_mod (as Python's %) or R.mod (as C's)
            f = R.add(x, R.shape_of(y))
            #            ^^^^^^^^^^^^^ relax.add: x2 is a tensor or a scalar, found R.Shape([4])
            # ... [DER-36]
            i = R.nn.rellu(x)
            #        ^^^^^ R.nn has no attribute 'rellu'
            # hint: did you mean `R.nn.relu`?
            i = R.sofmax(x)
            #     ^^^^^^ R has no attribute 'sofmax'
            # hint: did you mean `R.nn.softmax`?
            j = R.permute_dims(x, axes=(0.5,))
            #                          ^^^^^^ relax.permute_dims: axes is int or a list of them or
            # ... None, found (0.5,) [DER-36]
            return x
    """)


@pytest.mark.rule("SC-12")
def test_a_shape_variable_may_bring_its_name() -> None:
    k = tir.Var("k", "int64")

    @R.function
    def f(x: R.Tensor(("n",), "float32"), y: R.Object):
        n = T.var("int64", "n")
        k = T.var("int64", "k")
        z = R.match_cast(y, R.Tensor((n, k), "float32"))
        return R.shape([n, k])

    assert_structural_equal(from_source(f.script()), f)
    assert str(f.body.body) == "R.shape([n, k])"
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.var("int32", "n")
            #   ^^^^^^^^^^^^^^^^^^^ 'n' is int64 already, it cannot be int32 [PX-9]
            # hint: write n = T.int64()
            return x
    """)
    assert k.name == "k"


@pytest.mark.rule("NF-14")
def test_bindings_of_a_sequence_stand_where_it_stands() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            with R.SeqExpr():
                y = R.abs(y)
                with R.dataflow():
                    z = R.exp(y)
                    R.output(z)
                w = R.abs(z)
            with R.SeqExpr():
                return y
    """)
    assert names(func) == ["y", "y", "z", "w"]
    assert isinstance(func.body, rx.SeqExpr)
    assert func.body.body is bindings(func)[0].var
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.SeqExpr():
                w = R.abs(x)
            with R.SeqExpr() as s:
            #                   ^ with R.SeqExpr() is used alone, without `as`
                y = x
            return w
            #      ^ unknown name 'w' [WF-24]
            # hint: names bound in a block end with it: use them there, or bind them before it
    """)


@pytest.mark.rule("SC-12", "WF-6a")
def test_string_dimensions_may_be_computed() -> None:
    whole, half = ("n * 2", 4), "n"

    @R.function
    def f(
        x: R.Tensor((half,), "float32"), y: R.Tensor(whole, "float32"), z: R.Shape([f"{half} + 1"])
    ) -> R.Tensor(whole, "float32"):
        return y

    assert str(f.ret_struct_info) == 'R.Tensor((n * 2, 4), dtype="float32")'
    assert_structural_equal(from_source(f.script()), f)
    check_marks(
        """
        @R.function
        def main(x: R.Tensor((d,), "float32")) -> R.Shape([k]):
        #           ^^^^^^^^^^^^^^^^^^^^^^^^^ shape variable 'm' is bound nowhere: it is not a
        # ... whole dimension of any parameter [WF-6a]
        # hint: pass it in by a parameter, as in s: R.Shape(["m"])
        #                                         ^^^^^^^^^^^^ shape variable 'k' of the result
        # ... is bound by no parameter [WF-4]
        # hint: use dimensions of the parameters, or an unknown shape: R.Tensor(ndim=...)
            return x
    """,
        extra_vars={"R": R, "d": "m + 1", "k": "k"},
    )


def test_a_device_is_named_or_given() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32", 1)):
        #                                     ^ a device is a string or I.vdevice(...), found 1
        # hint: write vdevice="cuda:0"
            return x
    """)


def test_names_of_the_function_around_may_be_said_to_be_that() -> None:
    dtype = "int8"

    @R.function
    def main(x: R.Tensor((2,), dtype)) -> R.Tensor((2,), dtype):
        nonlocal dtype
        return R.add(x, R.const(1, dtype))

    assert main.ret_struct_info == TensorStructInfo((2,), "int8")


@pytest.mark.rule("PX-9", "WF-6b", "WF-22")
def test_shape_variables_have_the_dtype_that_the_signature_says() -> None:
    @R.function
    def f(
        x: R.Tensor(("n * 2", "m"), "float32"),
        y: R.Tensor((" m : int16", "n"), "float32"),
        k: R.Prim("int32", value="n"),
    ) -> R.Shape(["m: int16", "n"]):
        n, m = T.int32(), T.int16()

        @R.function
        def g(z: R.Tensor(("j: int16", "n"), "float32")) -> R.Shape(["j", "n"]):
            return R.shape_of(z)

        return g(y)

    m, n = f.params[1].struct_info.shape.values
    assert (m.dtype, n.dtype) == ("int16", "int32")
    assert f.params[2].struct_info == rx.PrimStructInfo("int32", n)
    assert_structural_equal(from_source(f.script()), f)


@pytest.mark.rule("SC-10", "SC-11", "RES-77")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_condition_that_is_written_out_has_two_branches(target, capsys) -> None:
    """The specification's own example of shadowing."""
    module = from_source("""
@R.function(pure=False)
def func(x: R.Tensor) -> R.Tensor:
    if True:
        # the true branch will be a nested SeqExpr and hence a new scope
        # this x will shadow the function parameter x
        x = R.const(1)
        R.print(x) # prints 1
        # the inner x goes out of scope
    else:
        R.print("not executed")
    R.print(x) # this x is the function parameter
    return x
""")
    assert_structural_equal(from_source(module.script()), module)
    x = np.array([2, 3], "int32")
    run = relaxpy.compile(relaxpy.IRModule({"func": module}), target=target)["func"]
    assert run(x) is x
    assert capsys.readouterr().out == "1\n[2 3]\n"


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize(
    ("value", "size"),
    [("T.int64(16)", 16), ("R.prim_value(16)", 16), ("n * 4", "n * 4"), ("16 // 2 * n", "8 * n")],
)
def test_a_scalar_of_known_value_is_a_dimension(value: str, size: object) -> None:
    func = graph(f"""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            size = {value}
            y: R.Tensor((size, 4), "float32") = R.zeros((size, 4), "float32")
            z = R.broadcast_to(y, R.shape([2, size, 4]))
            return z
    """)
    assert str(bindings(func)[1].var.struct_info) == f'R.Tensor(({size}, 4), dtype="float32")'


@pytest.mark.rule("PX-9")
def test_a_scalar_of_unknown_value_is_not_a_dimension() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32"), size: R.Prim("int64")):
            y = R.zeros((size, 4), "float32")
            #            ^^^^ relax.zeros: expected a scalar expression, found Var size [AST-21]
            # hint: name its value: R.match_cast(..., R.Prim(value=m)) binds m
            return y
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y: R.Tensor((x, 4), "float32") = R.zeros((4, 4), "float32")
            #            ^ expected a scalar expression, found Var x [AST-21]
            return y
    """)


def test_the_fields_of_a_result_that_is_some_tuple_are_derived() -> None:
    mod = from_source(
        textwrap.dedent(
            """
            @I.ir_module
            class Module:
                @R.function
                def main(x: R.Tensor((2,), "float32")):
                    y = Module.pair(x)
                    return y[1]

                @R.function
                def pair(x: R.Tensor((2,), "float32")) -> R.Tuple:
                    return (x, R.shape([2]))

                @R.function
                def unit(x: R.Tensor((2,), "float32")) -> R.Tuple:
                    return ()
            """
        )
    )
    results = [mod[name].struct_info.ret for name in ("main", "pair", "unit")]
    shape = ShapeStructInfo([2])
    assert results == [shape, TupleStructInfo([TensorStructInfo([2], "float32"), shape]), UNIT]
    with pytest.raises(StructInfoError, match="DER-45"):
        graph(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32")) -> R.Tuple:
                return x
            """
        )
