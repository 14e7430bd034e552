"""Passes for some of the functions of a module."""

import pytest

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.transform import ApplyPassToFunction, PassContext, module_pass
from relaxpy.script import from_source

TEXT = """
@I.ir_module
class Module:
    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        z = R.tanh(x)
        y = cls.helper(z)
        return y

    @T.prim_func
    def kernel(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(0)
"""


@pytest.fixture
def mod() -> IRModule:
    found = from_source(TEXT)
    assert isinstance(found, IRModule)
    return found


@pytest.mark.parametrize(
    ("regex", "changed", "kernels"),
    [
        ("main", {"main"}, {"tanh"}),
        ("help.*", {"helper"}, {"exp"}),
        ("main|helper", {"main", "helper"}, {"tanh", "exp"}),
        ("kernel", set(), set()),
    ],
)
def test_a_pass_changes_the_functions_whose_names_match(mod, regex, changed, kernels) -> None:
    after = ApplyPassToFunction(LegalizeOps(), regex)(mod)
    names = [v.name_hint for v in after]
    assert names[:3] == ["helper", "main", "kernel"]
    assert {name.removeprefix("tir_") for name in names[3:]} == kernels
    assert {v.name_hint for v in mod if after[v] is not mod[v]} == changed
    assert "global_symbol" not in after["helper"].attrs
    assert check_well_formed(after) == []


def test_other_functions_are_seen_by_their_signatures(mod: IRModule) -> None:
    seen: dict[str, str] = {}

    @module_pass(opt_level=0)
    def look(mod: IRModule, ctx: PassContext) -> IRModule:
        seen.update({v.name_hint: type(f).__name__ for v, f in mod.items()})
        assert all(f.struct_info == before[v].struct_info for v, f in mod.items())
        return mod

    before = mod
    assert ApplyPassToFunction(look, "main")(mod) is mod
    assert seen == {"helper": "ExternFunc", "main": "Function", "kernel": "ExternFunc"}


def test_a_name_that_matches_nothing_can_be_an_error(mod: IRModule) -> None:
    assert ApplyPassToFunction(LegalizeOps(), "mai")(mod) is mod
    with pytest.raises(TransformError, match="'mai'; there are helper, main, kernel"):
        ApplyPassToFunction(LegalizeOps(), "mai", error_if_no_function_matches_regex=True)(mod)


def test_it_takes_a_pass_and_a_regular_expression() -> None:
    with pytest.raises(MisuseError, match="pass_ is a Pass, found"):
        ApplyPassToFunction(LegalizeOps, "main")  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a regular expression, found '\\('"):
        ApplyPassToFunction(LegalizeOps(), "(")
    with pytest.raises(MisuseError, match="func_name_regex is a string, found 3"):
        ApplyPassToFunction(LegalizeOps(), 3)  # type: ignore[arg-type]
