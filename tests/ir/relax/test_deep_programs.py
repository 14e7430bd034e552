"""Programs nested far deeper than Python's stack: an error that says so, or they just work."""

from collections.abc import Callable
from typing import Any

import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError
from relaxpy.ir import load_json, save_json, structural_equal
from relaxpy.relax.testing import dump_ast

DEPTH = 1000
TENSOR = relax.TensorStructInfo((3,), "float32")
MESSAGE = "nested too deeply for Python's stack"


def function(params: list[relax.Var], body: relax.Expr, ret: relax.StructInfo) -> relax.Function:
    return relax.Function(params, body, ret, attrs={"global_symbol": "main"})


def deep_branches() -> relax.Function:
    cond = relax.Var("c", relax.TensorStructInfo((), "bool"))
    x = relax.Var("x", TENSOR)
    body: relax.Expr = x
    for i in range(DEPTH):
        y = relax.Var(f"y{i}", None)
        binding = relax.VarBinding(y, relax.If(cond, body, x))
        body = relax.SeqExpr([relax.BindingBlock([binding])], y)
    return function([cond, x], body, TENSOR)


def deep_sequences() -> relax.Function:
    x = relax.Var("x", TENSOR)
    body: relax.Expr = x
    for _ in range(DEPTH):
        body = relax.SeqExpr([], body)
    return function([x], body, TENSOR)


def deep_functions() -> relax.Function:
    x = relax.Var("x", TENSOR)
    body: relax.Expr = x
    for i in range(DEPTH):
        f = relax.Var(f"f{i}", None)
        inner = relax.Function([relax.Var(f"z{i}", TENSOR)], body, TENSOR)
        block = relax.BindingBlock([relax.VarBinding(f, inner)])
        body = relax.SeqExpr([block], relax.Call(f, [x]))
    return function([x], body, TENSOR)


def deep_info() -> relax.StructInfo:
    sinfo: relax.StructInfo = TENSOR
    for _ in range(DEPTH):
        sinfo = relax.TupleStructInfo([sinfo])
    return sinfo


def deep_infos() -> relax.Function:
    sinfo = deep_info()
    x = relax.Var("x", sinfo)
    return function([x], relax.SeqExpr([], x), sinfo)


def deep_calls() -> relax.Function:
    x = relax.Var("x", TENSOR)
    body: relax.Expr = x
    for _ in range(DEPTH):
        body = relax.op.add(body, x)
    return function([x], relax.SeqExpr([], body), TENSOR)


PROGRAMS = [deep_branches, deep_sequences, deep_functions, deep_infos]
TOO_DEEP: dict[str, Callable[[relax.Function], Any]] = {
    "BlockBuilder.normalize": lambda f: relax.BlockBuilder().normalize(f),
    "BlockBuilder.normalize_function": lambda f: relax.BlockBuilder().normalize_function(f),
    "Normalize": lambda f: relax.transform.Normalize()(IRModule({"main": f})),
    "LegalizeOps": lambda f: relax.transform.LegalizeOps()(IRModule({"main": f})),
    "well_formed": relax.analysis.well_formed,
    "check_well_formed": relax.analysis.check_well_formed,
    "compile": relaxpy.compile,
    "compile for reference": lambda f: relaxpy.compile(f, target="reference"),
    "visitor": lambda f: relax.PyExprVisitor().visit_expr(f),
    "mutator": lambda f: relax.PyExprMutator().visit_expr(f),
    "dump_ast": dump_ast,
}
FINE: dict[str, Callable[[relax.Function], Any]] = {
    "str": str,
    "repr": repr,
    "JSON": lambda f: load_json(save_json(f)),
    "structural_equal": lambda f: structural_equal(f, f),
    "free_vars": relax.analysis.free_vars,
    "post_order_visit": lambda f: relax.analysis.post_order_visit(f, lambda e: None),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("use", TOO_DEEP)
def test_what_the_stack_cannot_hold_is_an_error_of_the_program(use, program) -> None:
    with pytest.raises(MisuseError, match=MESSAGE):
        TOO_DEEP[use](program())


@pytest.mark.parametrize("program", [*PROGRAMS, deep_calls])
@pytest.mark.parametrize("use", FINE)
def test_what_keeps_its_own_stack_works_at_any_depth(use, program) -> None:
    assert FINE[use](program()) is not False


@pytest.mark.parametrize("use", [name for name in TOO_DEEP if name.startswith(("Bl", "No", "we"))])
def test_deep_calls_are_derived(use: str) -> None:
    assert TOO_DEEP[use](deep_calls())


@pytest.mark.parametrize("use", ["visitor", "mutator", "dump_ast"])
def test_deep_calls_are_too_deep_for_visitors(use: str) -> None:
    with pytest.raises(MisuseError, match=MESSAGE):
        TOO_DEEP[use](deep_calls())


@pytest.mark.parametrize(
    "name",
    [
        *("is_base_of", "check_compatibility", "explain_incompatibility", "shape_var_map"),
        *("struct_info_base_check", "struct_info_glb", "struct_info_lca"),
    ],
)
def test_relations_of_deep_struct_infos(name: str) -> None:
    with pytest.raises(MisuseError, match=MESSAGE):
        getattr(relax.analysis, name)(deep_info(), deep_info())


@pytest.mark.parametrize(
    "name",
    [*("definable_shape_vars", "free_shape_vars"), *("erase_to_well_defined", "get_static_type")],
)
def test_questions_about_deep_struct_infos(name: str) -> None:
    with pytest.raises(MisuseError, match=MESSAGE):
        getattr(relax.analysis, name)(deep_info())


def test_the_error_is_the_users_alone() -> None:
    func = deep_branches()
    with pytest.raises(MisuseError) as caught:
        relax.analysis.well_formed(func)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "sys.setrecursionlimit" in str(caught.value)


def test_within_reach_of_the_stack_programs_are_derived() -> None:
    x = relax.Var("x", TENSOR)
    body: relax.Expr = x
    for _ in range(20):
        body = relax.SeqExpr([], body)
    assert relax.analysis.well_formed(relax.BlockBuilder().normalize(function([x], body, TENSOR)))


def test_deep_lists_are_not_values() -> None:
    value: list[object] = []
    for _ in range(DEPTH):
        value = [value]
    for make in (relax.const, relax.convert_to_expr):
        with pytest.raises(MisuseError, match=f"{MESSAGE}|a list is nested|cannot make a tens"):
            make(value)
