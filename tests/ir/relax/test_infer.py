"""Derivation of struct infos: each rule with a program that keeps it, and one that breaks it."""

import warnings

import pytest

from relaxpy.errors import MisuseError, RelaxpyWarning, StructInfoError, StructInfoTypeError
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.script import relax as R
from tests.ir.relax.graphs import (
    BOOL,
    UNIT,
    bind,
    bindings,
    block,
    cast,
    dataflow,
    function,
    kernel,
    local,
    module,
    pure,
    seq,
    shape_of,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of

UNKNOWN = rx.TensorStructInfo(None, "", ndim=-1)  # type: ignore[arg-type]


def derived(params: list[rx.Var], body: rx.Expr, **options: object) -> rx.StructInfo:
    """What a function of this body returns."""
    found = normalize_function(function(params, body, **options))  # type: ignore[arg-type]
    assert isinstance(found.struct_info, rx.FuncStructInfo)
    return found.struct_info.ret


def result(mod: IRModule, name: str = "main") -> rx.StructInfo:
    sinfo = normalize_module(mod)[name].struct_info
    assert isinstance(sinfo, rx.FuncStructInfo)
    return sinfo.ret


# Leaves


@pytest.mark.rule("DER-3")
def test_a_variable_has_its_struct_info_and_an_unknown_one_is_an_error() -> None:
    x = var("x", tensor(2))
    assert derived([x], x) == tensor(2)
    with pytest.raises(StructInfoError, match=r"variable y is not in scope \[DER-3\]"):
        derived([x], var("y", tensor(2)))


@pytest.mark.rule("DER-4", "DER-5", "DER-6", "DER-7", "DER-8")
def test_literals_say_what_they_are() -> None:
    n = size("n")
    x = var("x", tensor(n))
    assert derived([], rx.const(1)) == tensor(dtype="int32")
    assert derived([], rx.const([1.0, 2.0])) == tensor(2)
    assert derived([x], rx.ShapeExpr((n, 2))) == shape(n, 2)  # type: ignore[arg-type]
    assert derived([], rx.PrimValue(3)) == prim(3)  # type: ignore[arg-type]
    assert derived([], rx.StringImm("s")) == Object
    assert derived([], rx.DataTypeImm("int8")) == Object  # type: ignore[arg-type]
    assert derived([x], rx.Tuple((x, rx.Tuple(())))) == tuple_of(tensor(n), UNIT)


@pytest.mark.rule("DER-32", "DER-33")
def test_a_projection_has_the_struct_info_of_the_field() -> None:
    t, o = var("t", tuple_of(tensor(2), prim())), var("o", Object)
    assert derived([t], rx.TupleGetItem(t, 1)) == prim()
    with pytest.raises(StructInfoTypeError, match=r"needs a tuple, found R.Object \[DER-32\]"):
        derived([o], rx.TupleGetItem(o, 0))
    with pytest.raises(StructInfoError, match="DER-33"):
        derived([], rx.TupleGetItem(pure("f", sinfo=tuple_of(prim())), 1))


@pytest.mark.rule("DER-32")
def test_indexing_a_tensor_says_what_to_write_instead() -> None:
    x = var("x", tensor(2))
    with pytest.raises(StructInfoTypeError, match=r"use R.take or R.strided_slice"):
        derived([x], rx.TupleGetItem(x, 0))


# Conditionals and scopes


@pytest.mark.rule("DER-10")
def test_an_if_has_what_its_branches_share() -> None:
    c, n = var("c", BOOL), size("n")
    x, y = var("x", tensor(n, 4)), var("y", tensor(n, 5))
    assert derived([c, x, y], rx.If(c, x, y)) == rank(2)
    assert derived([c, x], rx.If(c, x, x)) == tensor(n, 4)
    assert derived([c, x], rx.If(c, x, c)) == UNKNOWN
    assert derived([c, x], rx.If(c, x, rx.Tuple(()))) == Object


@pytest.mark.rule("DER-9")
@pytest.mark.parametrize(
    "sinfo", [Object, UNKNOWN, prim(dtype="bool"), tensor(1, dtype="bool"), tensor(dtype="float32")]
)
def test_a_condition_is_known_to_be_a_truth_value(sinfo: rx.StructInfo) -> None:
    c = var("c", sinfo)
    with pytest.raises(StructInfoTypeError, match="DER-9"):
        derived([c], rx.If(c, c, c))


@pytest.mark.rule("DER-11", "DER-13", "DER-14", "DER-27")
def test_what_a_branch_binds_is_forgotten_after_it() -> None:
    c, u, m = var("c", BOOL), var("u", rank(1)), size("m")
    y = var("y")
    branch = seq(block(cast(y, u, tensor(m)), cast(None, u, tensor(m))), y)
    found = normalize_function(function([c, u], rx.If(c, branch, branch_of(u))))
    value = bindings(found)[-1].value
    assert isinstance(value, rx.If)
    assert value.true_branch.struct_info == rank(1)
    assert bindings(value.true_branch)[0].var.struct_info == tensor(m)  # type: ignore[union-attr]


def branch_of(u: rx.Var) -> rx.SeqExpr:
    return seq(u)


@pytest.mark.rule("DER-13", "DER-14", "ERA-2")
def test_a_shape_bound_inside_is_unknown_outside() -> None:
    s, u, c = var("s", shape(2, 3)), var("u", rank(2)), var("c", BOOL)
    inner, t = var("inner", shape(2, 3)), var("t")
    as_inner = rx.TensorStructInfo(inner, "float32")
    branch = seq(block(bind(inner, s), cast(t, u, as_inner)), t)
    found = normalize_function(function([s, u, c], rx.If(c, branch, branch_of(u))))
    assert bindings(found)[-1].var.struct_info == rank(2)  # type: ignore[union-attr]


@pytest.mark.rule("DER-12", "SC-14")
def test_what_outlives_a_dataflow_block_does_not_mention_its_variables() -> None:
    u, s = var("u", rank(2)), var("s", shape(2, 3))
    inner = local("inner", shape(2, 3))
    y, m = var("y"), size("m")
    as_inner = rx.TensorStructInfo(inner, "float32")
    v = var("v", rank(1))
    z = var("z")
    body = seq(
        dataflow(bind(inner, s), cast(y, u, as_inner), cast(z, v, tensor(m))), rx.Tuple((y, z))
    )
    found = normalize_function(function([u, s, v], body))
    _, second, third = bindings(found)
    assert second.var.struct_info == rank(2)  # type: ignore[union-attr]
    assert third.var.struct_info == tensor(m)  # type: ignore[union-attr]
    assert found.struct_info.ret == tuple_of(rank(2), rank(1))  # type: ignore[union-attr]


@pytest.mark.rule("DER-12")
@pytest.mark.filterwarnings("error::relaxpy.errors.RelaxpyWarning")
def test_what_outlives_a_dataflow_block_loses_what_ends_there_at_its_end() -> None:
    def program(*, inside: bool) -> rx.Function:
        u, s, f = var("u", rank(2)), var("s", shape(2, 3)), var("f", func(tensor(2, 3), ret=UNIT))
        inner, y, z = local("inner", shape(2, 3)), var("y"), var("z")
        known = [bind(inner, s), cast(y, u, rx.TensorStructInfo(inner, "float32"))]
        use = bind(z, rx.Call(f, (y,)))
        blocks = [dataflow(*known, use)] if inside else [dataflow(*known), block(use)]
        return function([u, s, f], seq(*blocks, z))

    found = normalize_function(program(inside=True))
    assert bindings(found)[1].var.struct_info == rank(2)  # type: ignore[union-attr]
    with pytest.warns(RelaxpyWarning, match="DER-41"):
        normalize_function(program(inside=False))


# Bindings


@pytest.mark.rule("DER-17")
def test_a_variable_has_the_struct_info_of_its_value() -> None:
    x, y = var("x", tensor(2, 3)), var("y")
    found = normalize_function(function([x], seq(block(bind(y, shape_of(x))), y)))
    assert bindings(found)[0].var.struct_info == shape(2, 3)  # type: ignore[union-attr]


@pytest.mark.rule("DER-18", "DER-19")
def test_an_annotation_replaces_what_is_known() -> None:
    x = var("x", tensor(2, 3))
    assert derived([x], seq(block(bind(y := var("y", rank(2)), x)), y)) == rank(2)
    with pytest.raises(StructInfoError, match=r"dimension 1: 3 is not 4 \[DER-18\]"):
        derived([x], seq(block(bind(y := var("y", tensor(2, 4)), x)), y))


@pytest.mark.rule("DER-20", "SI-14")
def test_an_annotation_that_may_be_wrong_is_a_warning() -> None:
    x, y = var("x", tensor(size("n"))), var("y", tensor(4))
    with pytest.warns(RelaxpyWarning, match=r"dimension 0: n may not be 4 \[DER-20\]"):
        assert derived([x], seq(block(bind(y, x)), y)) == tensor(4)


@pytest.mark.rule("SI-15", "DER-18")
@pytest.mark.parametrize(
    ("found", "wanted"), [(Object, tensor(2)), (UNKNOWN, rank(2)), (rank(2, ""), rank(2))]
)
def test_where_more_must_be_known_the_error_asks_for_a_cast(
    found: rx.StructInfo, wanted: rx.StructInfo
) -> None:
    x, y = var("x", found), var("y", wanted)
    with pytest.raises(StructInfoError, match=r"hint: declare what it is first: R\.match_cast"):
        derived([x], seq(block(bind(y, x)), y))


@pytest.mark.rule("DER-23", "DER-24")
def test_a_cast_variable_has_the_struct_info_of_the_cast() -> None:
    u, m = var("u", rank(1)), size("m")
    y = var("y")
    found = normalize_function(function([u], seq(block(cast(y, u, tensor(m))), y)))
    assert bindings(found)[0].var.struct_info == tensor(m)  # type: ignore[union-attr]


@pytest.mark.rule("DER-25")
def test_the_annotation_of_a_cast_variable_admits_the_cast() -> None:
    u, m = var("u", rank(1)), size("m")
    y = var("y", rank(1))
    assert derived([u], seq(block(cast(y, u, tensor(m))), y)) == rank(1)
    with pytest.raises(StructInfoError, match="DER-25"):
        derived([u], seq(block(cast(var("y", rank(2)), u, tensor(m))), u))
    with pytest.warns(RelaxpyWarning, match="DER-25"):
        derived([u], seq(block(cast(var("y", tensor(4)), u, tensor(m))), u))


@pytest.mark.rule("DER-26")
@pytest.mark.parametrize(
    "wanted", [tensor(2, 4), tensor(2), tensor(2, 3, dtype="int8"), shape(2, 3), UNIT]
)
def test_a_cast_that_always_fails_is_a_warning(wanted: rx.StructInfo) -> None:
    x = var("x", tensor(2, 3))
    with pytest.warns(RelaxpyWarning, match="always fails"):
        derived([x], seq(block(cast(None, x, wanted)), x))


@pytest.mark.rule("DER-26")
@pytest.mark.parametrize("wanted", [Object, UNKNOWN, rank(2), tensor(2, size("m"))])
def test_a_cast_to_more_or_less_is_not_a_warning(wanted: rx.StructInfo) -> None:
    x = var("x", tensor(2, 3))
    derived([x], seq(block(cast(None, x, wanted)), x))


@pytest.mark.rule("DER-2", "DER-15", "DER-44")
def test_a_parameter_without_annotation_is_any_value_to_callers_in_a_cycle() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    p, q = var("p"), var("q")
    mod = module(f=function([p], g(p), prim()), g=function([q], f(q), prim()))
    found = normalize_module(mod)
    assert found["f"].struct_info == found["g"].struct_info == func(Object, ret=prim())


@pytest.mark.rule("SI-1", "DER-5")
def test_a_tuple_of_functions_of_the_module_has_a_struct_info() -> None:
    x, y = var("x", tensor(2)), var("y", tensor(2))
    value = pure("f", rx.Tuple((y, rx.GlobalVar("g"))))
    mod = normalize_module(module(g=function([x], x), main=function([y], value)))
    call = bindings(mod["main"])[-1].value
    assert isinstance(call, rx.Call)
    [pair] = call.args
    assert pair.struct_info == tuple_of(tensor(2), func(tensor(2), ret=tensor(2)))


def test_warnings_come_once() -> None:
    x, y = var("x", tensor(size("n"))), var("y", tensor(4))
    func = function([x], seq(block(bind(y, x)), y))
    with pytest.warns(RelaxpyWarning):
        once = normalize_function(func)
    assert normalize_function(once) is once


# Calls


@pytest.mark.rule("DER-28", "DER-29", "DER-30", "DER-34")
def test_a_packed_function_gives_what_the_call_says() -> None:
    x = var("x", tensor(2))
    extern = rx.ExternFunc("f")
    assert extern.struct_info == packed(rx.DEFAULT_DERIVE)

    def call(*sinfos: rx.StructInfo) -> rx.StructInfo:
        value = rx.Call(extern, (x,), sinfo_args=sinfos)
        return derived([x], value, is_pure=False)

    assert call() == Object
    assert call(prim()) == prim()
    assert call(prim(), tensor(2)) == tuple_of(prim(), tensor(2))


@pytest.mark.rule("DER-31", "DER-38", "SI-12", "SI-13")
def test_a_packed_form_gives_what_its_derivation_says() -> None:
    f = var("f", packed())
    assert derived([f], rx.Call(f, (), sinfo_args=(prim(),)), is_pure=False) == Object
    seen: list[rx.Call] = []

    def count(call: rx.Call, context: object) -> rx.StructInfo:
        seen.append(call)
        return prim(len(call.args))

    g = var("g", packed(rx.EnvFunc("count", count), pure=True))
    assert derived([g], rx.Call(g, (g, g, g))) == prim(3)
    assert len(seen) == 1


@pytest.mark.rule("SI-12")
def test_a_derivation_may_return_an_annotation_and_nothing_but_struct_info() -> None:
    f = var("f", packed(rx.EnvFunc("annotation", lambda call, context: R.Tensor((2,))), pure=True))
    assert derived([f], rx.Call(f, ())) == tensor(2, dtype="")
    g = var("g", packed(rx.EnvFunc("none", lambda call, context: None), pure=True))  # type: ignore[arg-type, return-value]
    with pytest.raises(MisuseError, match=r"expected a StructInfo, found None \[AST-5\]"):
        derived([g], rx.Call(g, ()))


@pytest.mark.rule("DER-35", "OP-16")
def test_an_operator_without_a_rule_gives_any_value_and_an_unknown_one_is_an_error() -> None:
    x = var("x", tensor(2))
    op = Op("test.no_rule")
    op.set_attr("FPurity", True)
    assert derived([x], rx.Call(op, (x,))) == Object
    op.reset_attr("FPurity")
    with pytest.raises(StructInfoError, match=r"test\.no_rule \[OP-16\]"):
        derived([x], rx.Call(op, (x,)))


@pytest.mark.rule("DER-36")
def test_an_operator_that_refuses_is_a_compile_time_error() -> None:
    s = var("s", shape(2))
    with pytest.raises(StructInfoTypeError, match=r"relax\.shape_of: expr is a tensor, found"):
        derived([s], shape_of(s))


@pytest.mark.rule("DER-37", "DER-39")
def test_only_functions_are_called_with_as_many_arguments_as_they_take() -> None:
    x, f = var("x", tensor(2)), var("f", func(Object, ret=prim()))
    assert derived([x, f], f(x)) == prim()
    with pytest.raises(StructInfoTypeError, match="cannot be called"):
        derived([x], x(x))
    with pytest.raises(StructInfoTypeError, match=r"f takes 1 argument, found 2 \[DER-39\]"):
        derived([x, f], f(x, x))


@pytest.mark.rule("DER-40", "DER-42")
def test_a_call_fills_in_the_sizes_of_its_arguments() -> None:
    n, m, k = size("n"), size("m"), size("k")
    f = var("f", func(tensor(n, m), tensor(m), ret=tensor(n + m, m * 2)))
    x, y = var("x", tensor(k, 4)), var("y", tensor(4))
    assert derived([f, x, y], f(x, y)) == tensor(k + 4, 8)


@pytest.mark.rule("DER-41", "SI-14")
def test_arguments_are_checked_after_that() -> None:
    n, k = size("n"), size("k")
    f = var("f", func(tensor(n), tensor(n), ret=prim()))
    x, y, z = var("x", tensor(3)), var("y", tensor(4)), var("z", tensor(k))
    assert derived([f, x], f(x, x)) == prim()
    message = r"argument 2 of f is .*: dimension 0: 4 is not 3 \[DER-41\]"
    with pytest.raises(StructInfoError, match=message) as caught:
        derived([f, x, y], f(x, y))
    assert caught.value.about is y
    with pytest.warns(RelaxpyWarning, match=r"dimension 0: k may not be 3 \[DER-41\]"):
        derived([f, x, z], f(x, z))


@pytest.mark.rule("DER-42", "DER-51", "ERA-3")
def test_a_size_that_no_argument_gives_is_unknown_in_the_result() -> None:
    n = size("n")
    f = var("f", func(tensor(n), ret=tensor(n, 2)))
    u = var("u", rank(1))
    with pytest.warns(RelaxpyWarning, match="DER-41"):
        assert derived([f, u], f(u)) == rank(2)


@pytest.mark.rule("DER-50")
def test_struct_infos_at_the_call_of_a_closure_change_nothing() -> None:
    f = var("f", func(ret=prim()))
    assert derived([f], rx.Call(f, (), sinfo_args=(tensor(2),))) == prim()


@pytest.mark.rule("DER-51")
def test_a_recursive_call_maps_sizes_anew() -> None:
    n = size("n")
    x, y, m = var("x", tensor(n)), var("y"), size("m")
    u = var("u", rank(1))
    main = rx.GlobalVar("main")
    half = var("half")
    body = seq(
        block(
            bind(u, pure("half", x, sinfo=rank(1))), cast(half, u, tensor(m)), bind(y, main(half))
        ),
        pure("join", y, sinfo=tensor(n)),
    )
    found = normalize_module(module(main=function([x], body, tensor(n))))["main"]
    assert [b.var.struct_info for b in bindings(found)][2] == tensor(m)  # type: ignore[union-attr]


@pytest.mark.rule("DER-51", "DER-21", "SC-4")
def test_a_recursive_local_call_maps_sizes_anew() -> None:
    n, m = size("n"), size("m")
    x, y, z, u = var("x", tensor(n)), var("y"), var("z"), var("u", rank(1))
    f = var("f")
    inner = seq(
        block(bind(u, pure("half", x, sinfo=rank(1))), cast(z, u, tensor(m)), bind(y, f(z))), x
    )
    found = normalize_function(
        function([], seq(block(bind(f, function([x], inner, tensor(n)))), f))
    )
    literal = bindings(found)[0].value
    assert bindings(literal)[2].var.struct_info == tensor(m)  # type: ignore[union-attr]


# Functions


@pytest.mark.rule("DER-15", "FN-3")
def test_a_parameter_without_annotation_may_be_anything() -> None:
    found = normalize_function(function([p := var("p")], p))
    assert found.params[0].struct_info == Object
    assert found.struct_info == func(Object, ret=Object)


@pytest.mark.rule("DER-16", "SC-12", "SC-3")
def test_sizes_of_a_signature_are_known_in_the_body_and_in_the_result() -> None:
    n = size("n")
    x = var("x", tensor(n))
    found = normalize_function(function([x], rx.ShapeExpr((n * 2,)), shape(n * 2)))
    assert found.struct_info == func(tensor(n), ret=shape(n * 2))


@pytest.mark.rule("DER-21", "DER-22")
def test_a_local_function_fits_the_annotation_of_its_variable() -> None:
    p = var("p", prim())
    f = var("f", func(prim(), ret=Object))
    assert derived([], seq(block(bind(f, function([p], p))), f)) == func(prim(), ret=Object)
    wrong = var("f", func(prim(), ret=tensor(2)))
    with pytest.raises(StructInfoError, match="DER-22"):
        derived([], seq(block(bind(wrong, function([var("p", prim())], rx.PrimValue(1)))), wrong))  # type: ignore[arg-type]


@pytest.mark.rule("RES-42", "DER-21", "SC-4")
def test_a_function_that_is_cast_may_call_itself_too() -> None:
    def program(wanted: rx.StructInfo, annotation: rx.StructInfo | None = None) -> rx.Function:
        p, f, y = var("p", prim()), var("f", annotation), var("y")
        literal = function([p], seq(block(bind(y, f(p))), y), prim())
        return function([], seq(block(cast(f, literal, wanted)), f))

    sinfo = func(prim(), ret=prim())
    found = normalize_function(program(sinfo))
    assert found.struct_info == func(ret=sinfo)
    inside = bindings(bindings(found)[0].value)[0].var
    assert inside is not None
    assert inside.struct_info == prim()
    assert normalize_function(found) is found
    annotated = normalize_function(program(sinfo, func(prim(), ret=prim())))
    assert annotated.struct_info == func(ret=sinfo)
    with pytest.raises(StructInfoError, match="DER-45"):
        normalize_function(program(func(prim(), ret=Object)))


@pytest.mark.rule("DER-17")
def test_a_local_function_that_is_not_recursive_has_what_was_derived() -> None:
    p, f = var("p", tensor(2, 3)), var("f")
    found = derived([], seq(block(bind(f, function([p], shape_of(p)))), f))
    assert found == func(tensor(2, 3), ret=shape(2, 3))


@pytest.mark.rule("DER-43", "SI-7", "PU-7")
def test_a_function_says_what_it_takes_gives_and_whether_it_is_pure() -> None:
    x = var("x", tensor(2))
    assert normalize_function(function([x], x)).struct_info == func(tensor(2), ret=tensor(2))
    impure = normalize_function(function([x], x, is_pure=False)).struct_info
    assert impure == func(tensor(2), ret=tensor(2), pure=False)


@pytest.mark.rule("DER-43", "SC-17")
def test_a_shape_that_is_a_parameter_is_unknown_to_callers() -> None:
    s = var("s", shape(2, 3))
    as_s = rx.TensorStructInfo(s, "float32")
    x = var("x", as_s)
    found = normalize_function(function([x, s], x, as_s))
    assert found.struct_info == func(rank(2), shape(2, 3), ret=rank(2))


@pytest.mark.rule("DER-44", "DER-1", "SC-2")
def test_a_recursive_function_sees_its_own_signature() -> None:
    p, y = var("p", prim()), var("y")
    main = rx.GlobalVar("main")
    mod = module(main=function([p], seq(block(bind(y, main(p))), y)))
    assert result(mod) == Object
    mod = module(main=function([p], seq(block(bind(y, main(p))), y), prim()))
    assert result(mod) == prim()


@pytest.mark.rule("DER-45", "DER-46", "SI-14")
def test_the_result_fits_its_annotation_which_then_holds() -> None:
    x = var("x", tensor(2))
    assert derived([x], x, ret=rank(1)) == rank(1)
    with pytest.raises(StructInfoError, match=r"the result is .*rank 1 is not rank 2 \[DER-45\]"):
        derived([x], x, ret=rank(2))
    y = var("y", tensor(size("n")))
    with pytest.warns(RelaxpyWarning, match="DER-45"):
        assert derived([y], y, ret=tensor(4)) == tensor(4)


@pytest.mark.rule("DER-47", "DER-48")
def test_without_annotation_the_result_keeps_what_the_signature_says() -> None:
    n, m = size("n"), size("m")
    x, u, y = var("x", tensor(n)), var("u", rank(1)), var("y")
    body = seq(block(cast(y, u, tensor(m))), rx.Tuple((x, y)))
    assert derived([x, u], body) == tuple_of(tensor(n), rank(1))


@pytest.mark.rule("DER-49", "VAL-10")
def test_a_kernel_is_an_impure_function_of_its_buffers() -> None:
    n = size("n")
    f = rx.GlobalVar("f")
    x = var("x", tensor(3, 4))
    mod = module(f=kernel((n, 4), (n,)), main=function([x], f(x, x), is_pure=False))
    with pytest.raises(StructInfoError, match="argument 2 of f"):
        normalize_module(mod)
    y = var("y", tensor(3))
    mod["main"] = function([x, y], f(x, y), is_pure=False)
    assert result(mod) == UNIT
    assert mod["f"].struct_info == func(tensor(n, 4), tensor(n), ret=UNIT, pure=False)


@pytest.mark.rule("DER-2", "SC-1", "TOP-5")
def test_callees_come_before_callers_however_they_are_written() -> None:
    x = var("x", tensor(2))
    f = rx.GlobalVar("f")
    main, helper = function([x], f(x)), function([y := var("y", tensor(2))], shape_of(y))
    assert result(module(main=main, f=helper)) == shape(2)
    assert result(module(f=helper, main=main)) == shape(2)


@pytest.mark.rule("DER-2", "DER-1")
def test_inside_a_cycle_signatures_are_used() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    mod = module(
        f=function([x := var("x", prim())], g(x)), g=function([y := var("y", prim())], f(y), prim())
    )
    with pytest.raises(StructInfoError, match="DER-45"):
        normalize_module(mod)
    mod["f"] = function([x := var("x", prim())], g(x), prim())
    assert normalize_module(mod)["f"].struct_info == func(prim(), ret=prim())


# Purity


@pytest.mark.rule("PU-5", "WF-7d")
def test_an_impure_call_in_a_dataflow_block_is_an_error() -> None:
    x = var("x", tensor(2))
    call = rx.Call(Op("relax.print"), (x,))
    with pytest.raises(StructInfoError, match=r"relax\.print is impure.*dataflow block \[PU-5\]"):
        derived([x], seq(dataflow(bind(local("y"), call)), x), is_pure=False)
    assert derived([x], seq(block(bind(var("y"), call)), x), is_pure=False) == tensor(2)


@pytest.mark.rule("PU-6", "PU-8", "PU-11")
def test_a_function_declared_pure_makes_no_impure_call() -> None:
    x = var("x", tensor(2))
    call = rx.Call(Op("relax.print"), (x,))
    with pytest.raises(StructInfoError, match=r"declared pure calls relax\.print.*PU-8"):
        derived([x], call)
    assert derived([x], call, is_pure=False) == UNIT
    assert derived([x], rx.Tuple((call, shape_of(x))), is_pure=False) == tuple_of(UNIT, shape(2))


@pytest.mark.rule("PU-9", "PU-10")
def test_force_pure_lifts_that_but_not_the_ban_in_dataflow_blocks() -> None:
    x = var("x", tensor(2))
    call = rx.Call(Op("relax.print"), (x,))
    forced = function([x], call).with_attr("relax.force_pure", True)
    sinfo = normalize_function(forced).struct_info
    assert sinfo == func(tensor(2), ret=UNIT)
    inside = function([x], seq(dataflow(bind(local("y"), call)), x))
    with pytest.raises(StructInfoError, match="PU-5"):
        normalize_function(inside.with_attr("relax.force_pure", True))


@pytest.mark.rule("PU-12")
@pytest.mark.parametrize("is_pure", [True, False])
def test_a_value_is_called_as_purely_as_its_struct_info_says(is_pure: bool) -> None:
    f = var("f", func(ret=UNIT, pure=is_pure))
    body = seq(dataflow(bind(local("y"), f())), rx.Tuple(()))
    if is_pure:
        assert derived([f], body) == UNIT
    else:
        with pytest.raises(StructInfoError, match="PU-5"):
            derived([f], body)


@pytest.mark.rule("PU-13", "LEG-15")
def test_a_packed_function_is_impure_unless_the_call_says_otherwise() -> None:
    with pytest.raises(StructInfoError, match=r"packed function f.*PU-8"):
        derived([], rx.Call(rx.ExternFunc("f"), ()))
    assert derived([], pure("f")) == Object


@pytest.mark.rule("PU-13", "PU-4")
def test_a_packed_function_may_be_registered_as_pure() -> None:
    register_func("test.infer.checked", lambda: None, pure=True)
    try:
        call = rx.Call(rx.ExternFunc("test.infer.checked"), ())
        assert derived([], seq(dataflow(bind(local("y"), call)), rx.Tuple(()))) == UNIT
    finally:
        remove_global_func("test.infer.checked")


@pytest.mark.rule("OP-10", "PU-13")
@pytest.mark.parametrize("is_pure", [True, False])
def test_a_function_that_writes_its_outputs_only_may_be_registered_as_pure(is_pure: bool) -> None:
    register_func("test.infer.writes", lambda out: None, pure=is_pure)
    try:
        writes = rx.ExternFunc("test.infer.writes")
        args = (writes, rx.Tuple(()))
        call = rx.Call(Op("relax.call_dps_packed"), args, sinfo_args=(tensor(2),))
        body = seq(dataflow(bind(y := var("y"), call)), y)
        if is_pure:
            assert derived([], body) == tensor(2)
        else:
            with pytest.raises(StructInfoError, match="PU-5"):
                derived([], body)
    finally:
        remove_global_func("test.infer.writes")


@pytest.mark.rule("PU-1", "PU-2", "PU-17")
def test_pure_functions_may_recurse_without_end_but_not_print() -> None:
    main, p = rx.GlobalVar("main"), var("p", prim())
    assert result(module(main=function([p], main(p), prim()))) == prim()
    with pytest.raises(StructInfoError, match="PU-8"):
        derived([], show(rx.StringImm("an effect")))


@pytest.mark.rule("PU-15", "PU-20")
def test_a_nested_function_answers_for_its_own_calls() -> None:
    x = var("x", tensor(2))
    inner = function([], rx.Call(Op("relax.print"), (x,)), is_pure=False)
    body = seq(dataflow(bind(local("f"), inner)), x)
    assert derived([x], body) == tensor(2)
    called = seq(block(bind(f := var("f"), inner)), f())
    with pytest.raises(StructInfoError, match="PU-8"):
        derived([x], called)


@pytest.mark.rule("PU-16")
def test_calls_in_branches_count() -> None:
    x, c = var("x", tensor(2)), var("c", BOOL)
    call = rx.Call(Op("relax.print"), (x,))
    with pytest.raises(StructInfoError, match="PU-8"):
        derived([x, c], rx.If(c, rx.If(c, rx.Tuple(()), call), rx.Tuple(())))


@pytest.mark.rule("PU-19", "PU-3")
def test_casts_are_welcome_in_dataflow_blocks() -> None:
    u, m = var("u", rank(1)), size("m")
    body = seq(
        dataflow(
            cast(local("a"), u, tensor(m)), cast(var("b"), u, tensor(m)), cast(None, u, tensor(m))
        ),
        u,
    )
    assert derived([u], body) == rank(1)


def test_an_error_names_rule_and_place_of_the_binding() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y = var("x", tensor(2)), var("y", tensor(3))
        with pytest.raises(StructInfoError) as caught:
            derived([x], seq(block(bind(y, x)), y))
    assert caught.value.diagnostic.rule == "DER-18"
    assert "y is R.Tensor((2,), dtype" in str(caught.value)
