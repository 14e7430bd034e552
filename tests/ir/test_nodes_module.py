"""The module: a table of functions that can be changed."""

import copy

import pytest

from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.ir import IRModule, structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate

X = rx.Var("x", rx.ObjectStructInfo())
IDENTITY = rx.Function([X], X)
KERNEL = PrimFunc([], Evaluate(0))


@pytest.mark.rule("AST-20")
def test_a_module_maps_global_names_to_functions():
    module = IRModule({"f": IDENTITY, rx.GlobalVar("k"): KERNEL})
    assert module["f"] is IDENTITY
    assert module[module.get_global_var("k")] is KERNEL
    assert [v.name_hint for v in module] == ["f", "k"]
    assert "f" in module
    assert "g" not in module
    assert len(module) == 2
    assert module.functions_by_name == {"f": IDENTITY, "k": KERNEL}
    assert [v.name_hint for v in module.get_global_vars()] == ["f", "k"]


@pytest.mark.rule("AST-20")
@pytest.mark.parametrize("value", [None, X, 3, rx.const(1)])
def test_a_module_holds_nothing_but_functions(value: object):
    module = IRModule()
    with pytest.raises(MisuseError, match="a module contains functions") as caught:
        module["f"] = value
    assert caught.value.diagnostic.rule == "AST-20"
    assert isinstance(caught.value, TypeError)
    assert len(module) == 0


@pytest.mark.parametrize(
    "use",
    [lambda m: m["mian"], lambda m: m.get_global_var("mian"), lambda m: m.__delitem__("mian")],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(use):
    module = IRModule({"main": IDENTITY})
    with pytest.raises(
        UnknownNameError, match="the module has no function 'mian'; it has main"
    ) as caught:
        use(module)
    assert "did you mean 'main'" in str(caught.value)
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda m: m[3], "named by a string or a GlobalVar, found 3"),
        (lambda m: m.__setitem__(3, KERNEL), "named by a string or a GlobalVar, found 3"),
        (lambda m: m.get_global_var(None), "no function None"),
        (lambda m: m.update([1]), r"a table from names to functions, found \[1\]"),
        (lambda m: m.update_global_info("mesh", 3), "global infos are in a list, found 3"),
        (lambda m: IRModule([1]), r"a table from names to functions, found \[1\]"),
        (lambda m: IRModule({3: KERNEL}), "named by a string or a GlobalVar, found 3"),
        (lambda m: IRModule(attrs=3), "attributes are a table"),
        (lambda m: IRModule(attrs=0), "attributes are a table"),
        (lambda m: IRModule(global_infos={"mesh": 3}), "global infos are in a list, found 3"),
        (lambda m: IRModule(global_infos=3), "global infos are a table of lists, found 3"),
        (lambda m: IRModule.from_expr(3), "expected a function, found 3"),
    ],
)
def test_what_makes_no_module_is_refused(use, says: str):
    with pytest.raises((MisuseError, UnknownNameError), match=says):
        use(IRModule({"f": IDENTITY}))


@pytest.mark.rule("SC-9")
def test_a_name_is_given_once():
    with pytest.raises(MisuseError, match="two functions are called f") as caught:
        IRModule({rx.GlobalVar("f"): IDENTITY, rx.GlobalVar("f"): KERNEL})
    assert caught.value.diagnostic.rule == "SC-9"
    assert 3 not in IRModule()
    assert [] not in IRModule()


def test_an_empty_module_says_that_it_is():
    with pytest.raises(UnknownNameError, match=r"'f' \(it is empty\)"):
        IRModule()["f"]


def test_entries_can_be_set_replaced_and_deleted():
    module = IRModule({"f": IDENTITY})
    var = module.get_global_var("f")
    module["f"] = KERNEL
    assert module.get_global_var("f") is var
    module["g"] = IDENTITY
    replacement = rx.GlobalVar("f")
    module[replacement] = IDENTITY
    assert module.get_global_var("f") is replacement
    assert [v.name_hint for v in module] == ["f", "g"]
    assert module[var] is IDENTITY, "a variable of the same name finds the entry"
    del module["g"]
    assert "g" not in module
    module.update_func(rx.GlobalVar("h"), KERNEL)
    module.update({"f": KERNEL})
    module.update(IRModule({"z": IDENTITY}))
    assert sorted(module.functions_by_name) == ["f", "h", "z"]
    assert [v.name_hint for v, _ in module.functions_items()] == ["f", "h", "z"]


def test_the_table_can_be_gone_through_while_it_changes():
    module = IRModule({"f": IDENTITY, "g": IDENTITY})
    for var in module:
        del module[var]
    assert len(module) == 0


def test_a_clone_changes_alone():
    module = IRModule({"f": IDENTITY}, {"a": 1}, {"mesh": [1]})
    for twin in (module.clone(), copy.copy(module), copy.deepcopy(module)):
        assert structural_equal(module, twin)
        assert twin.get_global_var("f") is module.get_global_var("f")
        twin["g"] = IDENTITY
        twin.update_global_info("mesh", [2])
    assert "g" not in module
    assert module.global_infos == {"mesh": (1,)}


def test_attributes_make_new_modules():
    module = IRModule({"f": IDENTITY})
    changed = module.with_attr("a", [1]).with_attrs({"b": 2})
    assert changed.attrs == {"a": (1,), "b": 2}
    assert changed.get_attr("a") == (1,)
    assert changed.without_attr("a").attrs == {"b": 2}
    assert module.get_attr("a") is None


def test_a_function_becomes_a_module_under_its_symbol():
    assert "main" in IRModule.from_expr(IDENTITY)
    named = IDENTITY.with_attr("global_symbol", "f")
    assert "f" in IRModule.from_expr(named)
    two = IRModule.from_expr(KERNEL, {rx.GlobalVar("main"): IDENTITY, "main_1": KERNEL})
    assert [v.name_hint for v in two] == ["main", "main_1", "main_2"]
    assert two["main"] is IDENTITY
    assert IRModule.from_expr(named, {"f": IDENTITY})["f"] is named


def test_modules_are_compared_by_content_and_hashed_by_identity():
    one, other = IRModule({"f": IDENTITY, "k": KERNEL}), IRModule({"k": KERNEL, "f": IDENTITY})
    assert structural_equal(one, other)
    assert len({one, other}) == 2
    other["f"] = KERNEL
    assert not structural_equal(one, other)
