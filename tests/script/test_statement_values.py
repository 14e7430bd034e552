"""Ifs and local functions are statements: how their variables are annotated and cast, and named."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MatchCastError, StructInfoError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source, relax as R
from tests.ir.relax.graphs import bindings
from tests.script.marked import check_marks

CHOICE = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
    n = T.int64()
    {head}
        if c:
            z = R.add(x, x)
        else:
            z = R.add(y, y)
    return {result}
"""


@pytest.mark.rule("AST-19", "NF-2")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_what_an_if_gives_is_cast(target: str) -> None:
    func = from_source(
        CHOICE.format(head='with R.match_cast(..., R.Tensor((n,), "float32")):', result="z")
    )
    (cast,) = bindings(func)
    assert isinstance(cast, rx.MatchCast)
    assert isinstance(cast.value, rx.If)
    assert cast.value.struct_info == R.Tensor("float32", ndim=1)
    assert cast.var.struct_info == func.params[1].struct_info
    assert_structural_equal(from_source(func.script()), func)
    run = relaxpy.compile(relaxpy.IRModule({"main": func}), target=target)["main"]
    x, y = np.ones(2, "float32"), np.ones(3, "float32")
    assert run(np.bool_(True), x, y).tolist() == [2, 2]
    with pytest.raises(MatchCastError):
        run(np.bool_(False), x, y)


@pytest.mark.rule("AST-19")
def test_a_cast_without_variable_checks_what_the_if_gives() -> None:
    text = CHOICE.format(head='with R.match_cast(..., R.Tensor((n,), "float32")):', result="x")
    func = from_source(text.replace("z =", "_ ="))
    (cast,) = bindings(func)
    assert isinstance(cast, rx.MatchCast)
    assert cast.var is None
    assert_structural_equal(from_source(func.script()), func)
    named = rx.MatchCast(rx.Var("_", cast.struct_info), cast.value, cast.struct_info)
    body = rx.SeqExpr([rx.BindingBlock([named])], func.params[1])
    other = rx.Function(func.params, body, func.ret_struct_info, attrs=func.attrs)
    assert_structural_equal(from_source(other.script()), other)


@pytest.mark.rule("MC-1")
def test_branches_that_are_names_are_not_annotated_by_the_cast_around() -> None:
    func = from_source("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
            n, m = T.int64(), T.int64()
            with R.match_cast(..., R.Tensor((m, 4), "float32")):
                if c:
                    y = R.exp(x)
                else:
                    y = x
            return R.shape([m])
    """)
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.rule("DER-19")
def test_the_variable_of_an_if_is_annotated_before_it() -> None:
    func = from_source(CHOICE.format(head="z: R.Tensor\n    if True:", result="z"))
    assert bindings(func)[0].var.struct_info == R.Tensor()
    assert func.struct_info.ret == R.Tensor()
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.rule("DER-18")
def test_an_annotation_that_what_the_if_gives_does_not_fit_is_refused() -> None:
    with pytest.raises(StructInfoError, match="DER-18"):
        from_source(CHOICE.format(head="z: R.Shape\n    if True:", result="z"))


@pytest.mark.rule("DER-21")
def test_the_variable_of_a_local_function_is_annotated_before_it() -> None:
    func = from_source("""
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            f: R.Callable((R.Tensor((3,), "float32"),), R.Tensor("float32"))

            @R.function
            def f(y: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
                z = f(y)
                return R.match_cast(z, R.Tensor((3,), "float32"))

            return f(x)
    """)
    assert func.struct_info.ret == R.Tensor("float32")
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.rule("AST-13")
def test_branches_end_in_local_functions() -> None:
    func = from_source("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
            if c:
                @R.function
                def f(y: R.Tensor((3,), "float32")):
                    return R.add(y, y)
            else:
                f: R.Callable((R.Tensor((3,), "float32"),), R.Tensor)

                @R.function
                def f(y: R.Tensor((3,), "float32")):
                    return y
            return f(x)
    """)
    assert_structural_equal(from_source(func.script()), func)
    ones = np.ones(3, "float32")
    assert [func(np.bool_(c), ones).tolist() for c in (True, False)] == [[2] * 3, [1] * 3]


@pytest.mark.rule("MC-1")
def test_a_local_function_is_cast() -> None:
    text = """
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.match_cast(..., R.Object):
                @R.function
                def f(y: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
                    return R.add(y, y)
            g = R.match_cast(f, R.Callable((R.Tensor((3,), "float32"),), R.Tensor("float32")))
            return g(x)
    """
    func = from_source(text)
    cast = bindings(func)[0]
    assert isinstance(cast, rx.MatchCast)
    assert isinstance(cast.value, rx.Function)
    assert_structural_equal(from_source(func.script()), func)
    assert func(np.ones(3, "float32")).tolist() == [2, 2, 2]


@pytest.mark.rule("AST-19")
def test_the_block_of_a_cast_holds_one_value() -> None:
    check_marks("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
            with R.match_cast(..., R.Object):
            #    ^^^^^^^^^^^^^^^^^^^^^^^^^^^ with R.match_cast(..., sinfo) contains one if or one
            # ... function
            # hint: other values replace the dots
                y = R.add(x, x)
            with R.match_cast(..., R.Object) as w:
            #                                   ^ with R.match_cast(..., sinfo) is used alone,
            # ... without `as`
                if c:
                    w = x
                else:
                    w = x
            with R.match_cast(..., R.Object), R.match_cast(..., R.Shape):
            #                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^ with R.match_cast(...,
            # ... sinfo) is used alone, without `as`
                if c:
                    w = x
                else:
                    w = x
            with R.match_cast(..., R.Object):
            #    ^^^^^^^^^^^^^^^^^^^^^^^^^^^ an if that is decided at parse time has no value to
            # ... cast
                if True:
                    z = x
            y: R.Object
        #   ^^^^^^^^^^^ a name is bound with a value: write name: sinfo = value
            if c:
                z = x
            else:
                z = x
            v: R.Object
            if c:
            #  ^ the annotation before it is of 'v', this binds 'u'
                v = x
                u = v
            else:
                u = x
            v: R.Object
            if True:
            #  ^^^^ a name is bound with a value: write name: sinfo = value
                v = x
            w = R.match_cast(..., R.Object)
            #                ^^^ Ellipsis has no meaning in a program
            return x
    """)


@pytest.mark.rule("TOP-1")
def test_a_function_that_python_cannot_spell_is_named_by_its_decorator() -> None:
    module = from_source("""
        @I.ir_module
        class Module:
            @T.prim_func(name="double.it")
            def double(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
                for i in range(3):
                    B[i] = A[i] * T.float32(2)

            @R.function(name="class")
            def class_1(x: R.Tensor((3,), "float32")):
                cls = Module
                return R.call_tir(cls.double, x, R.Tensor((3,), "float32"))
    """)
    assert [var.name_hint for var in module.functions] == ["double.it", "class"]
    assert [f.attrs["global_symbol"] for f in module.functions.values()] == ["double.it", "class"]
    assert_structural_equal(from_source(module.script()), module)
    assert relaxpy.compile(module)["class"](np.ones(3, "float32")).tolist() == [2, 2, 2]


@pytest.mark.rule("TOP-1")
def test_names_of_decorators_are_strings_and_no_two_the_same() -> None:
    check_marks("""
        @I.ir_module
        class Module:
            @R.function(name="f")
            def g(x: R.Tensor):
                return x
            @R.function
            def f(x: R.Tensor):
            #   ^ the module has two functions named 'f' [TOP-1]
            # hint: rename one
                return x
    """)
    check_marks("""
        @R.function(name=3)
        #                ^ option name is a string, found 3
        def f(x: R.Tensor):
            return x
    """)
    check_marks("""
        @R.function
        def f(x: R.Tensor):
            @R.function(name="h")
            def g(y: R.Tensor):
            #   ^ a function inside a function has no option name
                return y
            return g(x)
    """)


def test_an_empty_tuple_is_a_statement() -> None:
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    R.tuple()
    return x
"""
    )
    (binding,) = bindings(func)
    assert binding.var.struct_info == rx.TupleStructInfo(())
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.rule("DER-18")
@pytest.mark.parametrize(
    "value",
    [
        "x > y",
        "x == y",
        "-x",
        "x + y",
        "R.greater(x, y)",
        'R.astype(x, "bool")',
        "x.astype('bool')",
    ],
)
def test_an_annotated_operator_is_one_binding(value: str) -> None:
    func = from_source(
        f"""
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    a: R.Tensor(ndim=1) = {value}
    return a
"""
    )
    (binding,) = bindings(func)
    assert isinstance(binding.value, rx.Call)
    assert binding.var.name_hint == "a"
    assert binding.var.struct_info.shape is None
    assert func.body.body is binding.var


def test_an_annotated_call_that_python_refers_to_keeps_its_own_variable() -> None:
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    first = x > y
    a: R.Tensor(ndim=1) = first
    return R.logical_and(a, first)
"""
    )
    kept, copied, _ = bindings(func)
    assert (kept.var.name_hint, copied.value) == ("first", kept.var)
