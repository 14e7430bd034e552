"""Graph functions read back as they were: generated modules, and special cases by hand."""

import pytest
from hypothesis import given, settings

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.tir import expr as tir
from tests.fuzz.graph_nodes import modules
from tests.script.round_trips import round_trip


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@settings(max_examples=150)
@given(modules())
def test_modules_read_back(module: IRModule):
    round_trip(module)


@pytest.mark.rule("SC-16", "RES-70")
@pytest.mark.parametrize("shared", [True, False])
def test_functions_that_are_returned_keep_their_own_sizes(shared: bool) -> None:
    """def main(): def outer() -> Callable((Prim(p),), Prim(p)): def inner(y: Prim(p)): return y"""
    p = tir.Var("p", "int64")
    theirs = p if shared else tir.Var("p", "int64")
    y, inner, outer = rx.Var("y", rx.PrimStructInfo("int64", p)), rx.Var("inner"), rx.Var("outer")
    size = rx.PrimStructInfo("int64", theirs)

    def body(var: rx.Var, value: rx.Expr) -> rx.SeqExpr:
        return rx.SeqExpr([rx.BindingBlock([rx.VarBinding(var, value)])], var)

    returned = rx.Function([], body(inner, rx.Function([y], y)), rx.FuncStructInfo([size], size))
    main = rx.Function([], body(outer, returned), rx.FuncStructInfo([], returned.ret_struct_info))
    round_trip(normalize_module(IRModule({"main": main.with_attr("global_symbol", "main")})))


@pytest.mark.rule("DER-19")
def test_a_function_of_which_less_is_said_keeps_its_annotation():
    """Also where nothing was derived yet: the nodes are as they were put together."""
    anything = rx.ObjectStructInfo()
    x, y, f = rx.Var("x", anything), rx.Var("y", anything), rx.Var("f", anything)
    block = rx.BindingBlock([rx.VarBinding(f, rx.Function([y], y, anything))])
    round_trip(rx.Function([x], rx.SeqExpr([block], x), anything))
