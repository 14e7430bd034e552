"""Spellings of the older documents become what they mean now (rules LEG)."""

import textwrap

import numpy as np
import pytest

from relaxpy.errors import MisuseError, ParseError, RelaxpyError, RelaxpyWarning
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import (
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    static_type as ty,
)
from relaxpy.script import from_source, relax as R
from tests.ir.relax.graphs import bindings
from tests.script.marked import check_marks


def graph(text: str) -> rx.Function:
    func = from_source(textwrap.dedent(text))
    assert isinstance(func, rx.Function)
    assert_structural_equal(from_source(func.script()), func)
    return func


def sinfos(*annotations: str) -> list[rx.StructInfo]:
    """The struct infos of parameters with these annotations."""
    params = ", ".join(f"p{i}: {text}" for i, text in enumerate(annotations))
    func = graph(f"@R.function\ndef main(n: R.Shape(['n', 'm']), {params}):\n    return p0\n")
    return [p.struct_info for p in func.params[1:] if p.struct_info is not None]


def error_of(annotation: str) -> str:
    with pytest.raises(RelaxpyError) as caught:
        sinfos(annotation)
    return str(caught.value)


# --- match_shape


@pytest.mark.rule("LEG-1", "LEG-2", "MC-1")
def test_match_shape_is_a_match_cast_of_a_shape_or_of_a_tensor() -> None:
    func = graph("""
        @R.function
        def main(s: R.Shape(ndim=2), x: R.Tensor(dtype="int8", ndim=2), y: R.Tensor(ndim=1)):
            n, m = T.int64(), T.int64()
            a = R.match_shape(s, (n, m))
            b = R.match_shape(x, [m, n])
            R.match_shape(y, R.shape([n]))
            R.match_shape(R.shape_of(y), (n,))
            return (a, b)
    """)
    first, second, third, last = bindings(func)
    assert isinstance(first, rx.MatchCast)
    assert isinstance(second, rx.MatchCast)
    assert isinstance(third, rx.MatchCast)
    assert isinstance(first.struct_info, ShapeStructInfo)
    n, m = first.struct_info.values  # type: ignore[misc]
    assert second.struct_info == TensorStructInfo((m, n), "int8")  # type: ignore[arg-type]
    assert third.struct_info == TensorStructInfo((n,), "")  # type: ignore[arg-type]
    assert third.var is None
    assert isinstance(last, rx.MatchCast)


@pytest.mark.rule("LEG-3", "RES-67")
def test_match_shape_of_anything_else_is_an_error() -> None:
    check_marks("""
        @R.function
        def main(
            t: R.Tuple(R.Tensor), f: R.Callable, p: R.Prim("int64"), o: R.Object, n: R.Shape(["n"])
        ):
            n = T.int64()
            a = R.match_shape(t, (n,))
            #                 ^ only a tensor or a shape is matched with a shape, found
            # ... R.Tuple(R.Tensor) [LEG-3]
            b = R.match_shape(f, (n,))
            #                 ^ only a tensor or a shape is matched with a shape, found R.Callable
            # ... [LEG-3]
            c = R.match_shape(p, (n,))
            #                 ^ only a tensor or a shape is matched with a shape, found
            # ... R.Prim("int64") [LEG-3]
            d = R.match_shape(o, (n,))
            #                 ^ only a tensor or a shape is matched with a shape, found R.Object
            # ... [LEG-3]
            # hint: write R.match_cast(x, R.Tensor([n])) or R.match_cast(x, R.Shape([n]))
            e = R.match_shape(n, 5)
            #                    ^ a pattern is a list of dimensions, found 5 [LEG-1]
            return t
    """)


@pytest.mark.rule("LEG-31", "DER-26")
def test_match_shape_with_another_rank_is_a_warning_and_an_error_when_it_runs() -> None:
    text = """
@R.function
def main(x: R.Tensor(ndim=1, dtype="float32")):
    n, m = T.int64(), T.int64()
    y = R.match_shape(x, (n, m))
    return y
"""
    with pytest.warns(RelaxpyWarning, match="DER-26"):
        func = from_source(text)
    with pytest.raises(RelaxpyError, match="rank"):
        func(np.zeros(3, "float32"))


# --- RuntimeDepShape


@pytest.mark.rule("LEG-4")
@pytest.mark.parametrize("nothing", ["_", "R.RuntimeDepShape", "R.RuntimeDepShape()"])
def test_a_shape_of_which_nothing_is_said(nothing: str) -> None:
    tensor, ranked, shape = sinfos(
        f'R.Tensor({nothing}, "int32")', f"R.Tensor({nothing}, ndim=3)", f"R.Shape({nothing})"
    )
    assert tensor == TensorStructInfo(None, "int32", ndim=-1)
    assert ranked == TensorStructInfo(None, "", ndim=3)
    assert shape == ShapeStructInfo()


@pytest.mark.rule("LEG-4", "LEG-30", "DER-19")
def test_an_underscore_may_also_be_a_name() -> None:
    func = graph("""
        @R.function(pure=False)
        def main(x: R.Tensor(("_",), "float32")) -> R.Tensor(("_",), "float32"):
            _ = R.print(x)
            y: R.Tensor(_, "float32", ndim=1) = x
            return x
    """)
    found = bindings(func)[1].var.struct_info  # type: ignore[union-attr]
    assert found == TensorStructInfo(dtype="float32", ndim=1)


@pytest.mark.rule("LEG-5")
def test_runtime_dep_shape_in_a_body_is_an_error() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(_, "float32")):
            a = R.RuntimeDepShape()
            #   ^^^^^^^^^^^^^^^^^^^ RuntimeDepShape is not a value: it belongs in
            # ... annotations [LEG-5]
            # hint: R.shape_of(x) gives the shape of x when the program runs
            b = R.reshape(x, R.RuntimeDepShape)
            #                ^^^^^^^^^^^^^^^^^ RuntimeDepShape is not a value: it belongs in
            # ... annotations [LEG-5]
            # hint: R.shape_of(x) gives the shape of x when the program runs
            c = R.shape([_, 2])
            #            ^ RuntimeDepShape is not a value: it belongs in annotations [LEG-5]
            # hint: R.shape_of(x) gives the shape of x when the program runs
            return _
            #      ^ RuntimeDepShape is not a value: it belongs in annotations [LEG-5]
            # hint: R.shape_of(x) gives the shape of x when the program runs
    """)


@pytest.mark.rule("LEG-6", "LEG-18")
def test_what_is_known_of_an_expression_is_its_struct_info_alone() -> None:
    func = graph("@R.function\ndef main(x: R.Tensor((4,))):\n    return R.exp(x)\n")
    [binding] = bindings(func)
    assert binding.value.struct_info == TensorStructInfo((4,), "")  # type: ignore[arg-type]
    assert not hasattr(binding.value, "shape_")


# --- annotations


@pytest.mark.rule("LEG-7")
def test_a_tuple_of_shapes_is_a_tuple_of_tensors() -> None:
    flat, nested = sinfos('(("n", 4), ("n * 2",))', "(((3,), _), ())")
    assert isinstance(flat, TupleStructInfo)
    assert [str(f) for f in flat.fields] == ["R.Tensor((n, 4))", "R.Tensor((n * 2,))"]
    inner = TupleStructInfo((TensorStructInfo((3,), ""), TensorStructInfo(dtype="")))  # type: ignore[arg-type]
    assert nested == TupleStructInfo((inner, TensorStructInfo((), "")))  # type: ignore[arg-type]
    assert "an annotation is a struct info such as R.Tensor" in error_of("(3, 4)")
    assert "an annotation is a struct info such as R.Tensor" in error_of("((3,), R.Tensor)")


@pytest.mark.rule("LEG-8")
def test_a_shape_is_not_computed_in_an_annotation() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Shape([4]))):
            a: R.Tensor(R.shape_of(x), "float32") = x
            #           ^^^^^^^^^^^^^ the shape of an annotation is not computed in it [LEG-8]
            # hint: bind the shape to a variable first and write that: s = ...; R.Tensor(s)
            b = R.match_cast(x, R.Tensor(t[0], "float32"))
            #                            ^^^^ the shape of an annotation is not computed in it
            # ... [LEG-8]
            # hint: bind the shape to a variable first and write that: s = ...; R.Tensor(s)
            return x
    """)
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Shape([4]))):
            s = t[0]
            a: R.Tensor(s, "float32") = x
            return a
    """)
    assert bindings(func)[-1].var.struct_info.shape is bindings(func)[0].var  # type: ignore[union-attr]


@pytest.mark.rule("LEG-9", "LEG-10")
def test_checks_that_are_made_anyhow_are_not_read() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.check_annotation(x, R.Tensor)
            #     ^^^^^^^^^^^^^^^^ check_annotation is not supported [LEG-9]
            # hint: annotations are always checked; R.match_cast(x, R.Tensor(...)) checks a value
            b = R.dynamically_check_shapes(x)
            #     ^^^^^^^^^^^^^^^^^^^^^^^^ dynamically_check_shapes is not supported [LEG-9]
            # hint: bind the shape to a variable s and check with R.match_cast(x, R.Tensor(s))
            c = R.substitute_shape(x)
            #     ^^^^^^^^^^^^^^^^ substitute_shape is not supported [LEG-10]
            # hint: calls of functions replace shape variables by themselves
            return x
    """)


@pytest.mark.rule("LEG-11")
def test_cast_is_a_match_cast_to_a_type() -> None:
    func = graph("""
        @R.function
        def main(x: R.Object):
            a = R.cast(x, R.DynTensorType(2, "int8"))
            b = R.cast(a, type_args=[R.ObjectType])
            return R.exp(R.cast(b, R.DynTensorType(2, "float32")))
    """)
    casts = [b for b in bindings(func) if isinstance(b, rx.MatchCast)]
    assert [str(c.struct_info) for c in casts] == [
        'R.Tensor(dtype="int8", ndim=2)',
        "R.Object",
        'R.Tensor(dtype="float32", ndim=2)',
    ]
    assert casts[1].value is casts[0].var
    assert all(c.var is not None for c in casts)
    x = np.ones((2, 3), "float32")
    identity = graph("@R.function\ndef main(x: R.Object):\n    return R.cast(x, R.ObjectType)\n")
    assert identity(x) is not None
    with pytest.raises(RelaxpyError, match="float32"):
        func(x)
    check_marks("""
        @R.function
        def main(x: R.Object):
            return R.cast(x)
            #      ^^^^^^^^^ cast takes one type, as in R.cast(v, R.ObjectType()), found 0 [LEG-11]
    """)


@pytest.mark.rule("LEG-12", "LEG-20", "DER-28", "DER-29", "DER-30")
def test_type_args_are_what_a_packed_function_gives() -> None:
    func = graph("""
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            f = R.ExternFunc("my.f")
            a = R.call_packed("my.g", x, type_args=R.DynTensorType(2, "int8"))
            b = f(x, type_args=[R.ShapeType(1), R.ObjectType()])
            c = f(x)
            d = R.call_pure_packed("my.h", x, type_args=(R.ShapeType,))
            return (a, b, c, d)
    """)
    found = {b.var.name_hint: str(b.value.struct_info) for b in bindings(func) if b.var is not None}
    assert found["a"] == 'R.Tensor(dtype="int8", ndim=2)'
    assert found["b"] == "R.Tuple(R.Shape(ndim=1), R.Object)"
    assert found["c"] == "R.Object"
    assert found["d"] == "R.Shape"
    check_marks("""
        @R.function
        def main(f: R.Callable((R.Tensor,), R.Tensor), x: R.Tensor):
            return f(x, axis=1)
            #           ^^^^^^ a call of a function takes no keywords
            # hint: write f(x, 1)
    """)
    check_marks("""
        @R.function
        def main(f: R.Callable((R.Tensor, R.Tensor), R.Tensor), x: R.Tensor, z: R.Tensor):
            return f(y=x, x=z)
            #        ^^^ a call of a function takes no keywords
            # hint: give the arguments in the order of the parameters, without their names
    """)


@pytest.mark.rule("LEG-13", "TYP-4", "TYP-5")
@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("R.DynTensorType", 'R.Tensor(dtype="float32")'),
        ("R.DynTensorType(2, None)", "R.Tensor(ndim=2)"),
        ("R.DynTensorType(ndim=3, dtype=R.Int(8))", 'R.Tensor(dtype="int8", ndim=3)'),
        ("R.ShapeType", "R.Shape"),
        ("R.ShapeType(2)", "R.Shape(ndim=2)"),
        ("R.ObjectType", "R.Object"),
        ("R.ObjectType()", "R.Object"),
        ("R.TupleType", "R.Tuple()"),
        ("R.TupleType([R.ObjectType, R.ShapeType(1)])", "R.Tuple(R.Object, R.Shape(ndim=1))"),
        ("R.FuncType([R.ShapeType], R.ObjectType())", "R.Callable((R.Shape,), R.Object, True)"),
        (
            "R.FuncType([R.ShapeType], R.ObjectType, pure=False)",
            "R.Callable((R.Shape,), R.Object, False)",
        ),
        ("R.PackedFuncType", 'R.Callable(derive_func="default_derive")'),
        # The newer documents call struct infos types.
        ("R.TensorType((3, 4), 'int8')", 'R.Tensor((3, 4), dtype="int8")'),
        ("R.TensorType(dtype='int8', ndim=2)", 'R.Tensor(dtype="int8", ndim=2)'),
        ("R.ShapeType([3, 4])", "R.Shape([3, 4])"),
        ("R.ShapeType(ndim=1)", "R.Shape(ndim=1)"),
        ("R.PrimType('int64')", 'R.Prim("int64")'),
        ("R.TupleType(R.TensorType((3,)), R.Shape)", None),
        (
            "R.FuncType((R.Tensor((3,)),), R.Object)",
            "R.Callable((R.Tensor((3,)),), R.Object, True)",
        ),
    ],
)
def test_type_names_are_struct_infos(annotation: str, expected: str | None) -> None:
    [sinfo] = sinfos(annotation)
    assert str(sinfo) == (expected or 'R.Tuple(R.Tensor((3,), dtype="float32"), R.Shape)')


@pytest.mark.rule("LEG-13")
def test_types_that_are_none() -> None:
    assert "takes" in error_of("R.FuncType()") or "missing" in error_of("R.FuncType()")
    assert "an annotation is a struct info" in error_of("R.FuncType")
    assert "the types of arguments are a list" in error_of("R.FuncType(R.Shape, R.Shape)")
    assert "ndim is -1 (unknown) or a rank" in error_of("R.DynTensorType(-2)")


@pytest.mark.rule("LEG-13")
def test_types_that_python_made_are_struct_infos() -> None:
    kind = ty.DynTensorType(2, "int8")

    @R.function
    def f(x: kind) -> ty.ObjectType:
        return x

    assert f.params[0].struct_info == TensorStructInfo(dtype="int8", ndim=2)
    assert f.ret_struct_info == rx.ObjectStructInfo()


@pytest.mark.rule("LEG-14", "LEG-29")
def test_a_type_and_a_shape_are_one_struct_info() -> None:
    func = graph("""
        @R.function
        def main(
            x: (R.DynTensorType(2, "int8"), ("n", 4)),
            y: (R.TupleType(R.DynTensorType(-1), R.ObjectType), (("n",), _)),
            z: (R.ShapeType(2), _),
            u: (R.TupleType(), ()),
        ) -> (R.DynTensorType(2, "int8"), ("n", 4)):
            return x
    """)
    n = func.params[0].struct_info.get_shape()[0]  # type: ignore[union-attr,index]
    assert func.params[0].struct_info == TensorStructInfo((n, 4), "int8")  # type: ignore[arg-type]
    assert func.ret_struct_info == func.params[0].struct_info
    assert func.params[1].struct_info == TupleStructInfo(
        (TensorStructInfo((n,), "float32"), rx.ObjectStructInfo())  # type: ignore[arg-type]
    )
    assert func.params[2].struct_info == ShapeStructInfo(ndim=2)
    assert func.params[3].struct_info == TupleStructInfo(())


@pytest.mark.rule("LEG-29")
@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("(R.DynTensorType(3), (1, 2))", "a tensor type of rank 3 and a shape of 2"),
        ("(R.ShapeType, (1, 2))", "R.Shape and this shape"),
        ("(R.ObjectType(), (1, 2))", "R.Object and this shape"),
        ("(R.TupleType(R.ObjectType), ((1,), (2,)))", "a tuple type of 1 fields"),
        ("(R.TupleType(R.ShapeType), ((1,),))", "R.Shape and this shape"),
    ],
)
def test_a_type_and_a_shape_that_do_not_fit(annotation: str, message: str) -> None:
    found = error_of(annotation)
    assert message in found
    assert "[LEG-29]" in found


# --- purity


@pytest.mark.rule("LEG-15", "PU-5", "PU-8")
def test_pure_as_an_attribute() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.call_packed("my.f", x, sinfo_args=R.Object(), pure=True)
                R.output(y)
            return y
    """)
    assert func.is_pure
    mod = from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor):
        @R.function
        def inner(y: R.Tensor):
            R.func_attr({"pure": False})
            return Module.effect(y)

        return inner(x)

    @R.function
    def effect(x: R.Tensor) -> R.Tuple():
        R.func_attr({"pure": False, "mine": 1})
        return R.print(x)
""")
    effect, inner = mod["effect"], bindings(mod["main"])[0].value
    for func in (effect, inner):
        assert isinstance(func, rx.Function)
        assert not func.is_pure
    assert dict(effect.attrs) == {"global_symbol": "effect", "mine": 1}
    assert_structural_equal(from_source(mod.script()), mod)


@pytest.mark.rule("LEG-15", "LEG-16", "PU-5", "PU-7", "PU-8")
def test_what_is_not_said_to_be_pure_is_not() -> None:
    with pytest.raises(RelaxpyError, match="PU-8"):
        from_source("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    return R.call_packed("my.f", x, sinfo_args=R.Object())
""")
    with pytest.raises(RelaxpyError, match="PU-8"):
        from_source("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    R.func_attr({"pure": True})
    R.print(x)
    return x
""")
    with pytest.raises(ParseError, match="pure has to be the literal True or False"):
        from_source("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    R.func_attr({"pure": not True})
    return x
""")


@pytest.mark.rule("LEG-17")
def test_force_pure_by_its_older_name() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor):
            R.func_attr({"force_pure": True})
            R.print(x)
            return x
    """)
    assert func.attrs["relax.force_pure"] is True
    assert "force_pure" not in func.attrs


# --- datatypes


@pytest.mark.rule("LEG-27", "DT-3", "DT-5")
def test_datatypes_as_calls() -> None:
    assert (R.Int(8), R.Int(64), R.Float(16), R.Bool(), R.Void()) == (
        *("int8", "int64", "float16", "bool", ""),
    )
    a, b, c = sinfos(
        "R.Tensor((3,), R.Int(16))", "R.Tensor(dtype=R.Bool())", "R.Tensor(dtype=R.Void())"
    )
    assert (a.dtype, b.dtype, c.dtype) == ("int16", "bool", "")  # type: ignore[attr-defined]
    with pytest.raises(MisuseError, match="a bit width is an integer"):
        R.Int("8")
    assert "DT-8" in error_of("R.Tensor((3,), R.Int(5))")


# --- meanings that changed


@pytest.mark.rule("LEG-19", "AST-14")
def test_a_packed_function_is_a_value_like_any_other() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor):
            f = R.ExternFunc("my.f")
            return (f, R.ExternFunc("my.g"))
    """)
    assert isinstance(bindings(func)[0].value, rx.ExternFunc)


@pytest.mark.rule("LEG-22", "FN-5")
def test_lone_variables_count_wherever_they_stand() -> None:
    func = graph("""
        @R.function
        def main(x: R.Tensor(("n * 2",), "float32"), y: R.Tensor(("n",), "float32")):
            n = T.int64()
            return R.shape([n])
    """)
    assert func(np.zeros(6, "float32"), np.zeros(3, "float32")) is not None
    with pytest.raises(RelaxpyError, match="6"):
        func(np.zeros(5, "float32"), np.zeros(3, "float32"))


@pytest.mark.rule("LEG-23", "VAL-10")
def test_kernels_are_values() -> None:
    mod = from_source("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def k(A: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor):
        f = Module.k
        return (f, x)
""")
    sinfo = bindings(mod["main"])[0].var.struct_info
    assert isinstance(sinfo, rx.FuncStructInfo)
    assert sinfo.params == (TensorStructInfo((4,), "float32"),)


@pytest.mark.rule("LEG-28")
def test_tuples_have_no_tag() -> None:
    func = graph("@R.function\ndef main(x: R.Tensor((2,), 'int8')):\n    return (x, ())\n")
    found = func(np.zeros(2, "int8"))
    assert len(found) == 2
    assert not hasattr(found, "tag")
