"""Generated programs give the same after what rewrites functions without changing what they do."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator, mutator
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars, remove_all_unused
from tests.exec.kernels import function
from tests.fuzz.graphs import Program, run, write
from tests.fuzz.seed import COUNT, SEED


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


def inlined(mod: IRModule) -> rx.Function:
    """The function `main` as the body of one that only calls it."""
    main = main_of(mod)
    inner = main.without_attr("global_symbol")
    params = copy_with_new_vars(main).params
    result = rx.Var("result", main.ret_struct_info)
    call = rx.Call(rx.GlobalVar("inner"), params)
    outer = function(params, [(result, call)], result, pure=main.is_pure)
    others = {v: f for v, f in mod.items() if v.name_hint != "main"}
    functions = {rx.GlobalVar("inner"): inner, rx.GlobalVar("main"): outer}
    whole = normalize_module(IRModule({**others, **functions}))
    return main_of(whole).inline_functions({"inner": whole["inner"]})  # type: ignore[dict-item]


REWRITES: dict[str, Callable[[IRModule], rx.Function]] = {
    "rebuilt": lambda mod: Rebuild(mod).visit_expr(main_of(mod)),
    "without unused": lambda mod: remove_all_unused(main_of(mod)),
    "copied": lambda mod: copy_with_new_vars(main_of(mod)),
    "inlined": inlined,
    "sized": lambda mod: main_of(mod).bind_symbolic_vars({"n": 2}),
}


def sized(program: Program) -> Program:
    """The program with arguments of the size that is bound."""

    def literal(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return tuple(2 if size == "n" else size for size in shape)

    params = tuple(replace(param, shape=literal(param.shape)) for param in program.params)
    symbols = tuple(symbol for symbol in program.symbols if symbol != "n")
    return replace(program, params=params, symbols=symbols)


@pytest.mark.parametrize("name", REWRITES)
def test_rewritten_programs_give_the_same(name: str, tmp_path: Path) -> None:
    def rewritten(mod: IRModule) -> IRModule:
        mod = normalize_module(mod)
        after = mod.clone()
        after["main"] = REWRITES[name](mod)
        assert check_well_formed(after, normal_form=True) == []
        return after

    change = sized if name == "sized" else lambda program: program
    seeds = (f"{SEED} {name} {k}" for k in itertools.count())
    programs = ((seed, write(seed)) for seed in seeds)
    drawn = ((seed, p) for seed, p in programs if name != "sized" or "n" in p.symbols)
    for seed, program in itertools.islice(drawn, -(-COUNT // 10)):
        run(change(program), seed, tmp_path, ["numpy without passes"], rewritten)


def test_a_mutator_without_methods_changes_no_program(tmp_path: Path) -> None:
    def unchanged(mod: IRModule) -> IRModule:
        mod = normalize_module(mod)
        main = main_of(mod)
        assert PyExprMutator(mod).visit_expr(main) is main
        assert PyExprMutator().visit_expr(main) is main
        copy = copy_with_new_vars(main)
        assert_structural_equal(copy, main)
        assert copy.struct_info == main.struct_info
        return mod

    for k in range(-(-COUNT // 10)):
        run(write(f"{SEED} mutator {k}"), f"mutator {k}", tmp_path, [], unchanged)
