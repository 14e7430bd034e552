"""Whatever the constructors admit, every tool works on it or says what is wrong with it."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from xml.etree import ElementTree

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import RelaxpyError
from relaxpy.ir import Op, load_json, save_json, structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from tests.fuzz.ill_formed import Programs
from tests.ir.relax.graphs import kernel

USES: tuple[Callable[[IRModule], object], ...] = (
    lambda mod: [str(d) for d in check_well_formed(mod, normal_form=True)],
    lambda mod: mod.script(),
    lambda mod: load_json(save_json(mod)),
    structural_hash,
    lambda mod: ElementTree.fromstring(mod.graph().to_svg()),
    lambda mod: relax.transform.Normalize()(mod),
    lambda mod: relax.transform.LegalizeOps()(mod),
    lambda mod: relax.transform.NormalizeGlobalVar()(mod),
    lambda mod: relax.BlockBuilder(mod).normalize_function(mod["main"]),  # type: ignore[arg-type]
    lambda mod: relax.PyExprMutator(mod).visit_expr(mod["main"]),
    lambda mod: relax.analysis.remove_all_unused(mod["main"]),
    lambda mod: relax.analysis.free_symbolic_vars(mod["main"]),
    lambda mod: mod["main"].inline_functions({"f": mod["f"]} if "f" in mod else {}),
    lambda mod: mod["main"].bind_params(dict.fromkeys(mod["main"].params[:1], np.ones((2, 3)))),
    lambda mod: mod["main"].bind_symbolic_vars({"n": 3}),
    relaxpy.compile,
    lambda mod: relaxpy.compile(mod, "reference"),
    lambda mod: relaxpy.compile(mod, relax_pipeline=None),
)


def refusal(use: Callable[[IRModule], object], mod: IRModule) -> str | None:
    """What the tool says is wrong, if it is."""
    try:
        use(mod)
    except RelaxpyError as error:
        return str(error)
    return None


@pytest.mark.parametrize("seed", range(60))
def test_a_tool_works_or_says_what_is_wrong(seed: int) -> None:
    programs = Programs(seed)
    with warnings.catch_warnings(), suppress(RelaxpyError):  # what a constructor refuses
        warnings.simplefilter("ignore")
        mod = programs.module()
        assert "" not in [refusal(use, mod) for use in USES]


@pytest.mark.parametrize("start", range(1000, 1400, 20))
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_faults_cite_a_rule_and_modules_are_normalised_or_refused(start: int) -> None:
    for seed in range(start, start + 20):
        with suppress(RelaxpyError):
            mod = Programs(seed).module()
            for found in check_well_formed(mod):
                assert found.rule
                assert str(found)
            assert isinstance(normalize_module(mod), IRModule)


@pytest.mark.rule("WF-15b", "RES-19")
def test_shapes_whose_members_are_not_as_many_as_they_state_are_disjoint() -> None:
    wrong = rx.ShapeStructInfo((2, 3), 3)  # type: ignore[arg-type]
    right = rx.ShapeStructInfo((2, 3, 4))  # type: ignore[arg-type]
    answer = relax.analysis.struct_info_base_check(right, wrong)
    assert answer is relax.analysis.BaseCheckResult.FAIL_L0


@pytest.mark.rule("WF-9")
def test_a_function_that_returns_an_operator_has_a_hash() -> None:
    func = rx.Function((), rx.SeqExpr((), Op("relax.exp")))  # type: ignore[arg-type]
    assert structural_hash(func) == structural_hash(func)


@pytest.mark.rule("OP-3")
def test_a_kernel_call_without_outputs_is_refused_where_no_pass_runs() -> None:
    call = rx.Call(Op("relax.call_tir"), (rx.GlobalVar("k"), rx.Tuple(())))
    first = rx.TupleGetItem(call, 0)
    mod = IRModule({"main": rx.Function((), first, attrs={"global_symbol": "main"}), "k": kernel()})
    with pytest.raises(RelaxpyError):
        relaxpy.compile(mod, relax_pipeline=None)
