"""Bindings of a dataflow block added, removed and redirected."""

import pytest

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import name_to_binding
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.tvm.relax.binding_rewrite import DataflowBlockRewrite
from tests.ir.relax.graphs import bindings, called, pure, var
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import flow


def program(*lines: str, result: str = "y") -> rx.Function:
    found = flow("x: f32[2]", "; ".join(lines), result)["main"]
    assert isinstance(found, rx.Function)
    return found


def rewriting(func: rx.Function) -> DataflowBlockRewrite:
    return DataflowBlockRewrite(func.body.blocks[0], func)  # type: ignore[attr-defined]


def variable(func: rx.Function, name: str) -> rx.Var:
    found = name_to_binding(func)[name][0].var
    assert found is not None
    return found


def test_a_binding_is_added_behind_what_it_uses() -> None:
    func = program("a = R.add(x, x)", "b = R.add(x, x)", "y = R.add(a, b)")
    change = rewriting(func)
    change.add(pure("f", variable(func, "b")), "c", is_dfvar=True)
    after = change.mutated_root_fn()
    assert [b.var.name_hint for b in bindings(after) if b.var] == ["a", "b", "c", "y"]
    assert isinstance(variable(after, "c"), rx.DataflowVar)
    assert after.body.blocks[0] is change.mutated_dfb()  # type: ignore[attr-defined]
    assert after.struct_info == func.struct_info
    assert check_well_formed(after) == []
    assert len(bindings(func)) == 3


def test_added_variables_are_named() -> None:
    func = program("y = x")
    change = rewriting(func)
    change.add(func.params[0])
    change.add(func.params[0])
    change.add(pure("f", pure("g", func.params[0])), is_dfvar=True)
    assert [b.var.name_hint for b in change.mutated_dfb().bindings if b.var] == [
        "y", "lv", "tmp2", "tmp1", "tmp0",
    ]  # fmt: skip
    assert type(variable(change.mutated_root_fn(), "tmp0")) is rx.Var


def test_a_variable_is_bound_once() -> None:
    func = program("y = x")
    change = rewriting(func)
    z = var("z", tensor(2))
    change.add_binding(rx.VarBinding(z, func.params[0]))
    with pytest.raises(MisuseError, match="z is bound already"):
        change.add_binding(rx.VarBinding(z, func.params[0]))


def test_uses_are_redirected_and_struct_infos_follow() -> None:
    func = program("a = R.add(x, x)", "b = R.sum(x)", "c = (a, x)", "y = (c, a)")
    change = rewriting(func)
    change.replace_all_uses(variable(func, "a"), variable(func, "b"))
    after = change.mutated_root_fn()
    assert variable(after, "c").struct_info == rx.TupleStructInfo((tensor(), tensor(2)))
    assert after.body.blocks[0] is change.mutated_dfb()  # type: ignore[attr-defined]
    change.remove_unused(variable(func, "a"))
    assert "a" not in name_to_binding(change.mutated_root_fn())
    assert check_well_formed(change.mutated_root_fn()) == []
    with pytest.raises(MisuseError, match="is not bound by the function"):
        change.replace_all_uses(var("other"), variable(func, "b"))


def test_what_is_used_is_not_removed() -> None:
    func = program("a = R.add(x, x)", "y = R.add(a, a)")
    change = rewriting(func)
    with pytest.raises(TransformError, match="a is used by y"):
        change.remove_unused(variable(func, "a"))
    with pytest.raises(TransformError, match="y is used by a result"):
        change.remove_unused(variable(func, "y"))
    with pytest.raises(MisuseError, match="does not bind other"):
        change.remove_unused(var("other"))
    change.remove_unused(var("other"), allow_undef=True)
    assert change.mutated_root_fn() is func


def test_everything_unused_is_removed_at_once() -> None:
    func = program("a = R.add(x, x)", "b = R.add(a, a)", "y = R.abs(x)")
    change = rewriting(func)
    change.remove_all_unused()
    assert_structural_equal(change.mutated_root_fn(), program("y = R.abs(x)"))
    assert len(change.mutated_dfb().bindings) == 1


@pytest.mark.rule("NF-11")
def test_an_empty_block_leaves_the_function() -> None:
    for step in ("remove_all_unused", "remove_unused"):
        func = program("y = R.abs(x)", result="x")
        change = rewriting(func)
        getattr(change, step)(*([variable(func, "y")] if step == "remove_unused" else []))
        assert change.mutated_root_fn().body.blocks == ()  # type: ignore[attr-defined]
        assert change.mutated_dfb().bindings == ()


def test_a_module_gets_the_new_function() -> None:
    func = program("y = x")
    mod = IRModule({"main": func, "other": program("y = R.abs(x)")})
    change = rewriting(func)
    change.add(pure("f", func.params[0]), "z")
    after = change.mutate_irmodule(mod)
    assert after["main"] is change.mutated_root_fn()
    assert after["other"] is mod["other"]
    assert mod["main"] is func


def test_the_block_must_stand_in_the_function() -> None:
    func = program("y = x")
    with pytest.raises(MisuseError, match="is not in the function"):
        DataflowBlockRewrite(rx.DataflowBlock(()), func)
    with pytest.raises(MisuseError, match="takes a DataflowBlock and"):
        DataflowBlockRewrite(rx.BindingBlock(()), func)  # type: ignore[arg-type]
    assert called(func) == []
