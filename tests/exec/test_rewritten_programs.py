"""Generated programs give the same after what rewrites functions without changing what they do."""

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings, strategies as st
from typing_extensions import override

from relaxpy.exec.compile import compile
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator, mutator
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars
from relaxpy.ir.relax.rewrite.unused import remove_all_unused
from tests.exec.kernels import function
from tests.exec.test_programs import same
from tests.fuzz.squares import SQUARE, write


@mutator
class Rebuild(PyExprMutator):
    """Every variable anew, every call made again, through a variable more."""

    @override
    def visit_var_def_(self, var: rx.Var) -> rx.Var:
        return type(var)(var.name_hint, var.struct_info)

    @override
    def visit_call_(self, call: rx.Call) -> rx.Expr:
        call = self.visit_expr_post_order(call)
        return self.builder_.emit(rx.Call(call.op, call.args, call.attrs, call.sinfo_args))


def main_of(mod: IRModule) -> rx.Function:
    main = mod["main"]
    assert isinstance(main, rx.Function)
    return main


def caller(mod: IRModule) -> IRModule:
    """The module with a function that only calls `main`."""
    params = [rx.Var("x", SQUARE), rx.Var("y", SQUARE)]
    inner = main_of(mod).without_attr("global_symbol")
    ret = inner.struct_info
    assert isinstance(ret, rx.FuncStructInfo)
    result = rx.Var("result", ret.ret)
    outer = function(params, [(result, rx.Call(rx.GlobalVar("inner"), tuple(params)))], result)
    others = {v: f for v, f in mod.items() if v.name_hint != "main"}
    return normalize_module(
        IRModule({**others, rx.GlobalVar("inner"): inner, rx.GlobalVar("main"): outer})
    )


def inlined(mod: IRModule) -> rx.Function:
    whole = caller(mod)
    return main_of(whole).inline_functions({"inner": whole["inner"]})  # type: ignore[dict-item]


REWRITES: dict[str, Callable[[IRModule], rx.Function]] = {
    "rebuilt": lambda mod: Rebuild(mod).visit_expr(main_of(mod)),
    "without unused": lambda mod: remove_all_unused(main_of(mod)),
    "copied": lambda mod: copy_with_new_vars(main_of(mod)),
    "inlined": inlined,
    "sized": lambda mod: main_of(mod).bind_symbolic_vars({"n": 2}),
}


@given(st.data(), st.sampled_from(sorted(REWRITES)))
@settings(max_examples=20, deadline=None)
def test_rewritten_programs_give_the_same(data: st.DataObject, name: str) -> None:
    mod = normalize_module(write(data))
    after = mod.clone()
    after["main"] = REWRITES[name](mod)
    assert check_well_formed(after, normal_form=True) == []
    args = [np.arange(4, dtype="float32").reshape(2, 2) - k for k in (1, 2)]
    before = compile(mod, relax_pipeline=None)["main"](*args)
    same(compile(after, relax_pipeline=None)["main"](*args), before)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_a_mutator_without_methods_changes_no_program(data: st.DataObject) -> None:
    mod = normalize_module(write(data))
    main = main_of(mod)
    assert PyExprMutator(mod).visit_expr(main) is main
    assert PyExprMutator().visit_expr(main) is main
    copy = copy_with_new_vars(main)
    assert_structural_equal(copy, main)
    assert copy.struct_info == main.struct_info
