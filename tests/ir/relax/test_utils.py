"""Copies, inputs of call_tir, shapes, conversion of arguments, and the text of a tree."""

import typing
from typing import Any

import pytest

from relaxpy import IRModule, relax, te
from relaxpy.errors import MisuseError, StructInfoError
from relaxpy.ir import ops as op
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import bound_vars, defined_symbolic_vars, free_vars
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.tvm.relax.dump_ast import dump_ast
from tests.ir.relax.graphs import (
    bind,
    block,
    cast,
    dataflow,
    function,
    kernel,
    local,
    pure,
    seq,
    shape_of,
    size,
    var,
)
from tests.ir.relax.sinfos import func, packed, prim, rank, shape, tensor


@pytest.mark.rule("SC-9")
def test_a_copy_has_variables_of_its_own() -> None:
    n, m = size("n"), size("m")
    s, x = var("s", shape(n)), var("x", tensor(n))
    y, z, g, p = var("y"), local("z"), var("g"), var("p", tensor(m))
    free = var("free", tensor(2))
    body = seq(
        dataflow(bind(z, pure("f", x, sinfo=tensor(n))), cast(y, z, tensor(m))),
        block(bind(g, function([p], p))),
        rx.Tuple((y, g, free)),
    )
    main = BlockBuilder().normalize_function(function([x, s], body, global_symbol="main"))
    copy = relax.utils.copy_with_new_vars(main)
    assert_structural_equal(copy, main)
    assert copy.struct_info == main.struct_info
    assert not set(bound_vars(copy)) & set(bound_vars(main))
    assert not set(defined_symbolic_vars(copy)) & set(defined_symbolic_vars(main))
    assert [v.name_hint for v in bound_vars(copy)] == [v.name_hint for v in bound_vars(main)]
    assert free_vars(copy) == [free]


def test_a_function_and_its_copy_stand_in_one_module() -> None:
    n = size("n")
    x, y = var("x", tensor(n)), var("y")
    main = normalize_function(function([x], seq(block(bind(y, pure("f", x))), y)))
    twice = IRModule({"a": main.with_attr("global_symbol", "a"), "b": main})
    apart = IRModule({"a": twice["a"], "b": relax.utils.copy_with_new_vars(main)})
    assert check_well_formed(twice) != []
    assert check_well_formed(apart) == []
    with pytest.raises(MisuseError, match="expected a Function"):
        relax.utils.copy_with_new_vars(x)  # type: ignore[arg-type]


def test_inputs_of_a_call_of_a_kernel() -> None:
    n = size("n")
    x = var("x", tensor(n, 4))

    def double(a: Any) -> Any:
        return te.compute(a.shape, lambda i, j: a[i, j] + a[i, j], "double")

    kernel, args, sinfos, sizes = relax.utils.gen_call_tir_inputs(
        double, x, primfunc_attrs={"tag": 1}
    )
    assert isinstance(kernel, PrimFunc)
    assert kernel.attrs["tag"] == 1
    assert args == [x]
    assert sinfos == [tensor(n, 4)]
    assert sizes is None


def test_sizes_that_no_buffer_tells_are_inputs_and_outputs_may_be_several() -> None:
    n = size("n")
    x = var("x", tensor(4))

    def fill(a: Any, k: Any) -> list[Any]:
        return [te.compute((2,), lambda i: a[i], "s"), te.compute((4,), lambda i: a[i] + k, "t")]

    _, args, sinfos, sizes = relax.utils.gen_call_tir_inputs(fill, x, n)
    assert args == [x]
    assert sinfos == [tensor(2), tensor(4)]
    assert sizes is not None
    assert list(sizes) == [n]
    with pytest.raises(MisuseError, match="needs the shape and datatype"):
        relax.utils.gen_call_tir_inputs(fill, var("y", rank(1)), n)


def test_the_shape_of_a_tensor_is_what_its_struct_info_says() -> None:
    x, y = var("x", tensor(2, 3)), var("y", rank(2))
    found = relax.get_shape_of(x)
    assert isinstance(found, rx.ShapeExpr)
    assert [int(v.value) for v in found] == [2, 3]  # type: ignore[attr-defined]
    call = relax.get_shape_of(y)
    assert_structural_equal(call, shape_of(y))
    assert call.struct_info == rx.ShapeStructInfo(None, 2)
    with pytest.raises(StructInfoError, match="expected a tensor, found"):
        relax.get_shape_of(var("s", shape(2)))


def test_shapes_are_made_of_lists() -> None:
    assert relax.expr.make_shape([2, size("n")]).values[0].value == 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="list or tuple"):
        relax.expr.make_shape(3)  # type: ignore[arg-type]


def test_packed_functions_are_named() -> None:
    assert relax.extern("f").global_symbol == "f"
    assert relax.extern("f", packed(pure=True)).struct_info == packed(pure=True)


def test_an_expression_built_by_hand_is_given_its_struct_info_once() -> None:
    call = rx.Call(rx.ExternFunc("f"), ())
    relax.expr._update_struct_info(call, tensor(2))
    relax.expr._update_struct_info(call, tensor(2))
    assert call.struct_info == tensor(2)
    with pytest.raises(MisuseError, match="known to be"):
        relax.expr._update_struct_info(call, tensor(3))
    with pytest.raises(MisuseError, match="takes no struct info"):
        relax.expr._update_struct_info(op.add.op, tensor(3))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="takes no struct info"):
        relax.expr._update_struct_info(kernel((2,)), tensor(3))


def test_arguments_become_expressions() -> None:
    convert = relax.utils.args_converter

    @convert.to_expr("a")
    @convert.to_optional_expr("b")
    @convert.to_list_expr("c")
    @convert.to_optional_list_expr("d")
    def f(a: object, b: object = None, c: object = (), d: object = None, e: object = 1) -> Any:
        return a, b, c, d, e

    x = var("x")
    a, b, c, d, e = f(1, 2.0, ["s", x], e=5)
    assert (type(a), type(b), d, e) == (rx.PrimValue, rx.PrimValue, None, 5)
    assert [type(v) for v in c] == [rx.StringImm, rx.Var]
    assert f(x, None, [], [x])[3] == [x]
    with pytest.raises(TypeError, match="argument a: expected a Relax expression"):
        f(object())
    with pytest.raises(TypeError, match="argument c: expected a list"):
        f(1, None, 3)
    with pytest.raises(MisuseError, match="f has no parameter z"):
        convert.to_expr("z")(f)


def test_starred_arguments_become_expressions_one_by_one() -> None:
    convert = relax.utils.args_converter

    @convert.to_expr("a", "args", "kwargs")
    def f(a: rx.Expr | None, *args: rx.Expr | None, **kwargs: rx.Expr | None) -> Any:
        return a, args, kwargs

    a, args, kwargs = f(None, 1, (2, "s"), None, k=1.0, none=None)  # type: ignore[arg-type]
    assert a is None
    assert [type(v) for v in args] == [rx.PrimValue, rx.Tuple, type(None)]
    assert {k: type(v) for k, v in kwargs.items()} == {"k": rx.PrimValue, "none": type(None)}

    @convert.auto
    def g(*args: typing.List[rx.Expr], **kwargs: typing.Optional[rx.Expr]) -> Any:  # noqa: UP006, UP045
        return args, kwargs

    args, kwargs = g([1], [2, "s"], k=None, one=1)  # type: ignore[list-item, arg-type]
    assert [len(v) for v in args] == [1, 2]
    assert kwargs["k"] is None
    assert isinstance(kwargs["one"], rx.PrimValue)
    with pytest.raises(TypeError, match="argument args: expected a list"):
        g([1], 2)  # type: ignore[arg-type, list-item]
    with pytest.raises(TypeError, match="expected a Relax expression, found object"):
        g(k=object())  # type: ignore[arg-type]


def test_annotations_say_what_becomes_an_expression() -> None:
    @relax.utils.args_converter.auto
    def f(a: rx.Expr, b: list[rx.Expr], c: rx.Expr | None = None, d: int = 1) -> Any:
        return a, b, c, d

    a, b, c, d = f(1, [2], None, 3)  # type: ignore[arg-type, list-item]
    assert isinstance(a, rx.PrimValue)
    assert isinstance(b[0], rx.PrimValue)
    assert (c, d) == (None, 3)
    with pytest.raises(TypeError, match="argument b"):
        f(1, 2)  # type: ignore[arg-type]


def test_struct_infos_and_types_as_text() -> None:
    printer = relax.testing.ast_printer.ASTPrinter()
    assert printer.visit_struct_info_(prim()) == "PrimStructInfo(dtype=int64)"
    ranks = relax.TupleType([relax.ShapeType(2), relax.ObjectType()])
    assert printer.visit_type_(ranks).split() == [
        "TupleType(",
        "fields=[",
        "ShapeType(ndim=2),",
        "ObjectType()",
        "]",
        ")",
    ]
    takes = relax.FuncType([relax.TensorType(1, "int32")], relax.PackedFuncType())
    text = "".join(printer.visit_type_(takes).split())
    assert text == (
        "FuncType(arg_types=[DynTensorType(ndim=1,dtype=int32)],ret_type=PackedFuncType())"
    )


def test_a_tree_of_nodes_as_text() -> None:
    x = var("x", tensor(2))
    assert dump_ast(rx.Tuple((x,)), include_struct_info_annotations=False) == (
        'Tuple(fields=[Var(name_hint="x")])'
    )
    assert dump_ast(x, "  ") == (
        "Var(\n"
        '  name_hint="x",\n'
        "  struct_info=TensorStructInfo(\n"
        "    dtype=float32,\n"
        "    shape=ShapeExpr(\n"
        "      values=[PrimExpr(value=`T.int64(2)`)],\n"
        "      struct_info=ShapeStructInfo(\n"
        "        ndim=1,\n"
        "        values=[PrimExpr(value=`T.int64(2)`)]\n"
        "      )\n"
        "    )\n"
        "  )\n"
        ")"
    )


def test_every_kind_of_node_has_a_text() -> None:
    x, c = var("x", tensor(2)), var("c", func(prim(), ret=rank(-1)))
    y, z = local("y"), var("z")
    main = normalize_function(
        function(
            [x, c],
            seq(
                dataflow(bind(y, op.sum(x, axis=[0])), cast(z, y, tensor())),
                block(
                    bind(var("w"), rx.Tuple((rx.const([1, 2]), rx.StringImm("s"), rx.PrimValue(3))))
                ),
                rx.Tuple((z, rx.DataTypeImm("int8"), rx.ShapeExpr((4,)))),  # type: ignore[arg-type]
            ),
            global_symbol="main",
        )
    )
    text = dump_ast(main)
    for part in (
        "Function(", "params=[", "is_pure=True", '"global_symbol": "main"', "DataflowBlock(",
        "MatchCast(", "VarBinding(", 'Op(name="relax.sum")', '"axis": (0,)', "BindingBlock(",
        'StringImm(\n', "DataTypeImm(", "FuncStructInfo(", "ObjectStructInfo()", "Constant(",
    ):  # fmt: skip
        assert part in text, part
    assert '"axis"' not in dump_ast(main, include_call_attrs=False)
    assert "StructInfo" not in dump_ast(x, include_struct_info_annotations=False)
    with pytest.raises(MisuseError, match="expected a node"):
        dump_ast(3)  # type: ignore[arg-type]


@pytest.mark.rule("LEG-13")
def test_types_of_struct_info_are_that_of_pure_functions_by_default() -> None:
    scalar = relax.PrimStructInfo("int64")
    assert relax.FuncType([scalar], scalar) == relax.FuncStructInfo([scalar], scalar, True)
    assert relax.FuncType([scalar], scalar, False) == relax.FuncStructInfo([scalar], scalar, False)
    with pytest.raises(MisuseError, match="expected a list of types, found int 5"):
        relax.TupleType(5)
