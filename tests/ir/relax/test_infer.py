"""Derivation of struct infos: each rule with a program that keeps it, and one that breaks it.

Rows are those of `tests.ir.relax.graphs.written`, with the struct info of the result, or of
variables by name, or an error or a warning:

    DER-10: c=BOOL, x=tensor(n, 4), y=tensor(n, 5) | rx.If(c, x, y) => rank(2)
    DER-18: x=tensor(2); y=tensor(3) | seq(block(bind(y, x)), y) => StructInfoError: 2 is not 3
"""

import re
import warnings
from typing import Any

import pytest

from relaxpy import IRModule, errors
from relaxpy.errors import RelaxpyWarning, StructInfoError
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.script import relax as R
from tests.ir.relax.graphs import (
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
    size,
    var,
    written,
)
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of
from tests.rows import by_rule

ANNOTATION = rx.EnvFunc("annotation", lambda call, context: R.Tensor((2,)))
NONE = rx.EnvFunc("none", lambda call, context: None)  # type: ignore[arg-type, return-value]
UNKNOWN = rx.TensorStructInfo(None, "", ndim=-1)  # type: ignore[arg-type]


def by_name(shape: rx.Var) -> rx.TensorStructInfo:
    """A tensor whose shape a variable has."""
    return rx.TensorStructInfo(shape, "float32")  # type: ignore[arg-type]


def said(text: str) -> rx.Call:
    return rx.Call(Op("relax.print"), (rx.StringImm(text),))


def run_case(case: str) -> None:
    program, outcome, names = written(case, globals())
    found = re.fullmatch(r"(\w+Error|warning): (.*?)(?: & (.*))?", outcome)
    if found is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compare(normalize_function(program), outcome, names)
        return
    kind, message, more = found.groups()
    if kind == "warning":
        with pytest.warns(RelaxpyWarning, match=message):
            compare(normalize_function(program), more or "", names)
        return
    with pytest.raises(getattr(errors, kind), match=message):
        normalize_function(program)


def compare(found: rx.Function, outcome: str, names: dict[str, Any]) -> None:
    bound: dict[str, Any] = {"": found.struct_info.ret}  # type: ignore[union-attr]
    todo: list[Any] = [found]
    while todo:
        for binding in bindings(todo.pop()):
            if binding.var is not None:
                bound[binding.var.name_hint] = binding.var.struct_info
            match getattr(binding, "value", None):
                case rx.If(true_branch=yes, false_branch=no):
                    todo += [yes, no]
                case rx.Function() as literal:
                    todo.append(literal)
    for part in filter(None, outcome.split(" & ")):
        name, expected = re.fullmatch(r"(?:(\w+): )?(.*)", part).groups()  # type: ignore[union-attr]
        assert bound[name or ""] == eval(expected, names), part


DERIVED = """
DER-3: x=tensor(2) | x => tensor(2)
DER-3: x=tensor(2) | var("y", tensor(2)) => StructInfoError: variable y is not in scope .DER-3
DER-4: | rx.const(1) => tensor(dtype="int32")
DER-4: | rx.const([1.0, 2.0]) => tensor(2)
DER-5: x=tensor(n) | rx.ShapeExpr((n, 2)) => shape(n, 2)
DER-6: | rx.PrimValue(3) => prim(3)
DER-7: | rx.StringImm("s") => Object
DER-8: | rx.DataTypeImm("int8") => Object
DER-8: x=tensor(n) | rx.Tuple((x, rx.Tuple(()))) => tuple_of(tensor(n), UNIT)
DER-32: t=tuple_of(tensor(2), prim()) | rx.TupleGetItem(t, 1) => prim()
DER-32: o=Object | rx.TupleGetItem(o, 0)
    => StructInfoTypeError: needs a tuple, found R.Object .DER-32
DER-32: o=Object | rx.TupleGetItem(o, 0)
    => StructInfoTypeError: hint: declare what it is first: R.match_cast
DER-33: | rx.TupleGetItem(pure("f", sinfo=tuple_of(prim())), 1) => StructInfoError: DER-33
DER-32: x=tensor(2) | rx.TupleGetItem(x, 0) => StructInfoTypeError: use R.take or R.strided_slice
DER-10: c=BOOL, x=tensor(n, 4), y=tensor(n, 5) | rx.If(c, x, y) => rank(2)
DER-10: c=BOOL, x=tensor(n, 4) | rx.If(c, x, x) => tensor(n, 4)
DER-10: c=BOOL, x=tensor(n, 4) | rx.If(c, x, c) => UNKNOWN
DER-10: c=BOOL, x=tensor(n, 4) | rx.If(c, x, rx.Tuple(())) => Object
DER-9: c=Object | rx.If(c, c, c) => StructInfoTypeError: DER-9
DER-9: c=UNKNOWN | rx.If(c, c, c) => StructInfoTypeError: DER-9
DER-9: c=prim(dtype="bool") | rx.If(c, c, c) => StructInfoTypeError: DER-9
DER-9: c=tensor(1, dtype="bool") | rx.If(c, c, c) => StructInfoTypeError: DER-9
DER-9: c=tensor(dtype="float32") | rx.If(c, c, c) => StructInfoTypeError: DER-9
DER-11 DER-13 DER-14 DER-27: c=BOOL, u=rank(1); y=None
    | rx.If(c, seq(block(cast(y, u, tensor(m)), cast(None, u, tensor(m))), y), seq(u))
    => rank(1) & y: tensor(m)
DER-13 DER-14 ERA-2: s=shape(2, 3), u=rank(2), c=BOOL; inner=shape(2, 3), t=None
    | rx.If(c, seq(block(bind(inner, s), cast(t, u, by_name(inner))), t), seq(u)) => rank(2)
DER-12 SC-14: u=rank(2), s=shape(2, 3), v=rank(1); inner_=shape(2, 3), y=None, z=None
    | seq(dataflow(bind(inner_, s), cast(y, u, by_name(inner_)), cast(z, v, tensor(m))),
    rx.Tuple((y, z))) => tuple_of(rank(2), rank(1)) & y: rank(2) & z: tensor(m)
DER-12: u=rank(2), s=shape(2, 3), f=func(tensor(2, 3), ret=UNIT); inner_=shape(2, 3), y=None, z=None
    | seq(dataflow(bind(inner_, s), cast(y, u, by_name(inner_)), bind(z, f(y))), z) => y: rank(2)
DER-12: u=rank(2), s=shape(2, 3), f=func(tensor(2, 3), ret=UNIT); inner_=shape(2, 3), y=None, z=None
    | seq(dataflow(bind(inner_, s), cast(y, u, by_name(inner_))), block(bind(z, f(y))), z)
    => warning: DER-41
DER-17: x=tensor(2, 3); y=None | seq(block(bind(y, shape_of(x))), y) => y: shape(2, 3)
DER-18 DER-19: x=tensor(2, 3); y=rank(2) | seq(block(bind(y, x)), y) => rank(2)
DER-18: x=tensor(2, 3); y=tensor(2, 4) | seq(block(bind(y, x)), y)
    => StructInfoError: dimension 1: 3 is not 4 .DER-18
DER-20 SI-14: x=tensor(n); y=tensor(4) | seq(block(bind(y, x)), y)
    => warning: dimension 0: n may not be 4 .DER-20 & tensor(4)
DER-18: x=tuple_of(Object); y=tuple_of(Object, Object) | seq(block(bind(y, x)), y)
    => StructInfoError: 1 fields are not 2 .DER-18
SI-15 DER-18: x=Object; y=tensor(2) | seq(block(bind(y, x)), y)
    => StructInfoError: hint: declare what it is first: R.match_cast
SI-15 DER-18: x=UNKNOWN; y=rank(2) | seq(block(bind(y, x)), y)
    => StructInfoError: hint: declare what it is first: R.match_cast
SI-15 DER-18: x=rank(2, ""); y=rank(2) | seq(block(bind(y, x)), y)
    => StructInfoError: hint: declare what it is first: R.match_cast
DER-23 DER-24: u=rank(1); y=None | seq(block(cast(y, u, tensor(m))), y) => y: tensor(m)
DER-25: u=rank(1); y=rank(1) | seq(block(cast(y, u, tensor(m))), y) => rank(1)
DER-25: u=rank(1); y=rank(2) | seq(block(cast(y, u, tensor(m))), u) => StructInfoError: DER-25
DER-25: u=rank(1); y=tensor(4) | seq(block(cast(y, u, tensor(m))), u) => warning: DER-25
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, tensor(2, 4))), x) => warning: always fails
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, tensor(2))), x) => warning: always fails
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, tensor(2, 3, dtype="int8"))), x)
    => warning: always fails
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, shape(2, 3))), x) => warning: always fails
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, UNIT)), x) => warning: always fails
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, Object)), x) => tensor(2, 3)
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, UNKNOWN)), x) => tensor(2, 3)
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, rank(2))), x) => tensor(2, 3)
DER-26: x=tensor(2, 3) | seq(block(cast(None, x, tensor(2, m))), x) => tensor(2, 3)
DER-28 DER-29: x=tensor(2) | impure: rx.Call(rx.ExternFunc("f"), (x,)) => Object
DER-30: x=tensor(2) | impure: rx.Call(rx.ExternFunc("f"), (x,), sinfo_args=(prim(),)) => prim()
DER-34: x=tensor(2)
    | impure: rx.Call(rx.ExternFunc("f"), (x,), sinfo_args=(prim(), tensor(2)))
    => tuple_of(prim(), tensor(2))
DER-31 DER-38: f=packed() | impure: rx.Call(f, (), sinfo_args=(prim(),)) => Object
SI-12: f=packed(ANNOTATION, pure=True)
    | rx.Call(f, ()) => tensor(2, dtype="")
SI-12: f=packed(NONE, pure=True) | rx.Call(f, ())
    => MisuseError: expected a StructInfo, found None .AST-5
DER-36: s=shape(2) | shape_of(s) => StructInfoTypeError: relax.shape_of: expr is a tensor, found
DER-37: x=tensor(2), f=func(Object, ret=prim()) | f(x) => prim()
DER-37: x=tensor(2) | x(x) => StructInfoTypeError: cannot be called
DER-39: x=tensor(2), f=func(Object, ret=prim()) | f(x, x)
    => StructInfoTypeError: f takes 1 argument, found 2 .DER-39
DER-40 DER-42: f=func(tensor(n, m), tensor(m), ret=tensor(n + m, m * 2)),
    x=tensor(k, 4), y=tensor(4) | f(x, y) => tensor(k + 4, 8)
DER-41: f=func(tensor(n), tensor(n), ret=prim()), x=tensor(3) | f(x, x) => prim()
DER-41: f=func(tensor(n), tensor(n), ret=prim()), x=tensor(3), y=tensor(4) | f(x, y)
    => StructInfoError: argument 2 of f is .*: dimension 0: 4 is not 3 .DER-41
DER-41 SI-14: f=func(tensor(n), tensor(n), ret=prim()), x=tensor(3), z=tensor(k)
    | f(x, z) => warning: dimension 0: k may not be 3 .DER-41
DER-42 DER-51 ERA-3: f=func(tensor(n), ret=tensor(n, 2)), u=rank(1) | f(u)
    => warning: DER-41 & rank(2)
DER-50: f=func(ret=prim()) | rx.Call(f, (), sinfo_args=(tensor(2),)) => prim()
DER-15 FN-3: p=None | p => Object
DER-16 SC-12 SC-3: x=tensor(n) | rx.ShapeExpr((n * 2,)) -> shape(n * 2) => shape(n * 2)
DER-21 DER-22: ; p=prim(), f=func(prim(), ret=Object) | seq(block(bind(f, function([p], p))), f)
    => func(prim(), ret=Object)
DER-22: ; p=prim(), f=func(prim(), ret=tensor(2))
    | seq(block(bind(f, function([p], rx.PrimValue(1)))), f) => StructInfoError: DER-22
DER-17: ; p=tensor(2, 3), f=None | seq(block(bind(f, function([p], shape_of(p)))), f)
    => func(tensor(2, 3), ret=shape(2, 3))
DER-51 DER-21 SC-4: ; x=tensor(n), y=None, z=None, u=rank(1), f=None
    | seq(block(bind(f, function([x], seq(block(bind(u, pure("half", x, sinfo=rank(1))),
    cast(z, u, tensor(m)), bind(y, f(z))), x), tensor(n)))), f) => y: tensor(m)
DER-45: x=tensor(2) | x -> rank(1) => rank(1)
DER-45 DER-46: x=tensor(2) | x -> rank(2)
    => StructInfoError: the result is .*rank 1 is not rank 2 .DER-45
DER-45 SI-14: y=tensor(n) | y -> tensor(4) => warning: DER-45 & tensor(4)
DER-47 DER-48: x=tensor(n), u=rank(1); y=None | seq(block(cast(y, u, tensor(m))), rx.Tuple((x, y)))
    => tuple_of(tensor(n), rank(1))
PU-5 WF-7d: x=tensor(2); y_=None | impure: seq(dataflow(bind(y_, show(x))), x)
    => StructInfoError: relax.print is impure.*dataflow block .PU-5
PU-5: x=tensor(2); y=None | impure: seq(block(bind(y, show(x))), x) => tensor(2)
PU-6 PU-8: x=tensor(2) | show(x) => StructInfoError: declared pure calls relax.print.*PU-8
PU-11: x=tensor(2) | impure: show(x) => UNIT
PU-11: x=tensor(2) | impure: rx.Tuple((show(x), shape_of(x))) => tuple_of(UNIT, shape(2))
PU-12: f=func(ret=UNIT, pure=True); y_=None | seq(dataflow(bind(y_, f())), rx.Tuple(())) => UNIT
PU-12: f=func(ret=UNIT, pure=False); y_=None | seq(dataflow(bind(y_, f())), rx.Tuple(()))
    => StructInfoError: PU-5
PU-13 LEG-15: | rx.Call(rx.ExternFunc("f"), ()) => StructInfoError: packed function f.*PU-8
PU-13: | pure("f") => Object
PU-17 PU-2: | said("an effect") => StructInfoError: PU-8
PU-15 PU-20: x=tensor(2); f_=None
    | seq(dataflow(bind(f_, function([], show(x), is_pure=False))), x) => tensor(2)
PU-15: x=tensor(2); f=None | seq(block(bind(f, function([], show(x), is_pure=False))), f())
    => StructInfoError: PU-8
PU-16: x=tensor(2), c=BOOL | rx.If(c, rx.If(c, rx.Tuple(()), show(x)), rx.Tuple(()))
    => StructInfoError: PU-8
PU-19 PU-3: u=rank(1); a_=None, b=None
    | seq(dataflow(cast(a_, u, tensor(m)), cast(b, u, tensor(m)), cast(None, u, tensor(m))), u)
    => rank(1)
"""


@pytest.mark.rule("DER-3", "DER-4", "DER-5", "DER-6", "DER-7", "DER-8", "DER-9", "DER-10", "DER-11")
@pytest.mark.rule("DER-12", "DER-13", "DER-14", "DER-15", "DER-16", "DER-17", "DER-18", "DER-19")
@pytest.mark.rule("DER-20", "DER-21", "DER-22", "DER-23", "DER-24", "DER-25", "DER-26", "DER-27")
@pytest.mark.rule("DER-28", "DER-29", "DER-30", "DER-31", "DER-32", "DER-33", "DER-34", "DER-36")
@pytest.mark.rule("DER-37", "DER-38", "DER-39", "DER-40", "DER-41", "DER-42", "DER-45", "DER-46")
@pytest.mark.rule("DER-47", "DER-48", "DER-50", "DER-51", "ERA-2", "ERA-3", "FN-3", "LEG-15")
@pytest.mark.rule(
    "PU-2", "PU-3", "PU-5", "PU-6", "PU-8", "PU-11", "PU-12", "PU-13", "PU-15", "PU-16"
)
@pytest.mark.rule("PU-17", "PU-19", "PU-20", "SC-3", "SC-4", "SC-12", "SC-14", "SI-12", "SI-14")
@pytest.mark.rule("SI-15", "WF-7d", "PU-16")
@pytest.mark.parametrize("case", by_rule(DERIVED))
def test_derivation(case: str) -> None:
    run_case(case)


def derived(params: list[rx.Var], body: rx.Expr, **options: object) -> rx.StructInfo:
    """What a function of this body returns."""
    found = normalize_function(function(params, body, **options))  # type: ignore[arg-type]
    assert isinstance(found.struct_info, rx.FuncStructInfo)
    return found.struct_info.ret


def result(mod: IRModule, name: str = "main") -> rx.StructInfo:
    sinfo = normalize_module(mod)[name].struct_info
    assert isinstance(sinfo, rx.FuncStructInfo)
    return sinfo.ret


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


@pytest.mark.rule("SI-12", "SI-13")
def test_a_packed_form_gives_what_its_derivation_says() -> None:
    seen: list[rx.Call] = []

    def count(call: rx.Call, context: object) -> rx.StructInfo:
        seen.append(call)
        return prim(len(call.args))

    g = var("g", packed(rx.EnvFunc("count", count), pure=True))
    assert derived([g], rx.Call(g, (g, g, g))) == prim(3)
    assert len(seen) == 1


@pytest.mark.rule("DER-35", "OP-16")
def test_an_operator_without_a_rule_gives_any_value_and_an_unknown_one_is_an_error() -> None:
    x = var("x", tensor(2))
    op = Op("test.no_rule")
    op.set_attr("FPurity", True)
    assert derived([x], rx.Call(op, (x,))) == Object
    op.reset_attr("FPurity")
    with pytest.raises(StructInfoError, match=r"test\.no_rule \[OP-16\]"):
        derived([x], rx.Call(op, (x,)))


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


@pytest.mark.rule("PU-1")
def test_pure_functions_may_recurse_without_end() -> None:
    main, p = rx.GlobalVar("main"), var("p", prim())
    assert result(module(main=function([p], main(p), prim()))) == prim()
