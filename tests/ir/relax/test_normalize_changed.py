"""Between passes only what has changed, or what calls it, is normalised and derived again."""

import pytest

from relaxpy.errors import StructInfoError
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.normalize import Normalizer
from relaxpy.script import from_source
from relaxpy.tvm.cleanup.module_passes import function_pass

CALLEE = """
    @R.function(private=True)
    def callee(x: R.Tensor({shape}, "float32")):
        return R.{op}(x)
"""
PROGRAM = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return M.callee(x)

    @R.function
    def aside(x: R.Tensor((4,), "float32")):
        return R.exp(R.exp(x))
"""


def module() -> IRModule:
    mod = from_source(PROGRAM + CALLEE.format(shape="(4,)", op="abs"))
    assert isinstance(mod, IRModule)
    return normalize_module(mod)


def with_callee(mod: IRModule, shape: str = "(4,)", op: str = "abs") -> IRModule:
    """The module with another function, in normal form, that its main calls."""
    text = "@I.ir_module\nclass Other:" + CALLEE.format(shape=shape, op=op)
    other = from_source(text, check_well_formed=False)
    assert isinstance(other, IRModule)
    result = mod.clone()
    result["callee"] = normalize_module(other)["callee"]
    return result


@pytest.fixture
def normalized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The results of the functions that a Normalizer goes through, as they are gone through."""
    seen: list[str] = []
    inner = Normalizer.function

    def noting(self: Normalizer, func: rx.Function) -> rx.Function:
        seen.append(str(func.attrs.get("global_symbol", "callee")))
        return inner(self, func)

    monkeypatch.setattr(Normalizer, "function", noting)
    return seen


def test_what_is_normal_is_not_normalised_again(normalized: list[str]) -> None:
    mod = module()
    assert set(normalized) == {"aside", "callee", "main"}
    normalized.clear()
    assert normalize_module(mod) is mod
    assert check_well_formed(mod) == []
    assert normalized == []


def test_after_a_pass_only_what_it_changed_is_normalised(normalized: list[str]) -> None:
    mod = module()

    @function_pass(opt_level=0)
    def rebuild_aside(func: rx.Function, mod: IRModule, ctx: PassContext) -> rx.Function:
        symbol = func.attrs.get("global_symbol")
        return rx.Function(func.params, func.body, attrs=func.attrs) if symbol == "aside" else func

    normalized.clear()
    with PassContext(check=True):
        rebuild_aside(mod)
    assert normalized == ["aside"]


@pytest.mark.rule("DER-2")
def test_a_caller_is_normalised_when_the_signature_it_sees_has_changed(normalized) -> None:
    mod = module()
    same, other = with_callee(mod, op="exp"), with_callee(mod, shape='("n",)')
    normalized.clear()
    assert normalize_module(same) is same
    assert normalized == []
    assert normalize_module(other) is other
    assert normalized == ["main"]


@pytest.mark.rule("DER-2", "DER-18", "DER-41")
@pytest.mark.parametrize(
    ("callee", "rules"), [({"op": "isnan"}, ["DER-18", "DER-42"]), ({"shape": "(5,)"}, ["DER-41"])]
)
def test_a_caller_of_what_no_longer_fits_is_found(callee: dict[str, str], rules: list[str]) -> None:
    mod = with_callee(module(), **callee)
    assert [found.rule for found in check_well_formed(mod)] == rules
    with pytest.raises(StructInfoError, match=rules[0]):
        normalize_module(mod)


def test_a_caller_without_its_callee_is_found() -> None:
    mod = module()
    assert check_well_formed(mod) == []
    assert check_well_formed(IRModule({"main": mod["main"]})) != []
