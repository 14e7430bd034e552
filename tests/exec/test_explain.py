"""relaxpy.transform.explain: what each pass of a pipeline did."""

import pytest

import relaxpy
from relaxpy import transform
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.transform import LegalizeOps, Normalize
from tests.ir.relax.texts import graph, module

Model = graph("""
def main(x: f32[2, 3]):
    y = R.exp(R.add(x, x))
    return y
""")


def test_the_runs_are_those_of_the_pipeline() -> None:
    found = transform.explain(Model, "legalize")
    assert [(run.name, run.depth) for run in found] == [
        ("legalize", 0), ("Normalize", 1), ("LegalizeOps", 1),
    ]  # fmt: skip
    assert len(found) == 3
    assert_structural_equal(found.mod, transform.get_pipeline("legalize")(Model))
    whole, normalize, legalize = found
    assert normalize.before is normalize.after is Model
    assert normalize.changes == {}
    kinds = dict(legalize.changes)
    assert kinds.pop("main") == "changed"
    assert sorted(kinds.values()) == ["added", "added"]
    assert whole.seconds >= normalize.seconds + legalize.seconds


def test_a_prompt_shows_the_table() -> None:
    found = transform.explain(Model, "legalize")
    assert repr(found) == str(found)
    assert len(repr(found).splitlines()) == 5


def test_a_run_has_one_line() -> None:
    whole, normalize, legalize = transform.explain(Model, "legalize")
    assert repr(whole) == "<legalize: added add, tir_exp; changed main>"
    assert repr(normalize) == "<Normalize: no change>"
    assert repr(legalize) == "<LegalizeOps: added add, tir_exp; changed main>"
    text = "".join(f"def f{i}(x: f32[{i}]):\n    return R.exp(x)\n\n" for i in range(1, 7))
    runs = transform.explain(module(text), "legalize").runs
    assert repr(runs[-1]) == "<LegalizeOps: added 6 functions; changed 6 functions>"


def test_the_default_pipeline_shows_what_was_fused() -> None:
    found = transform.explain(Model)
    runs = {run.name: run for run in found}
    assert found.mod is runs["default"].after
    assert runs["FuseOps"].changes == {"fused_add_tir_exp": "added", "main": "changed"}
    assert runs["FuseTIR"].changes["fused_add_tir_exp"] == "changed"
    assert_structural_equal(found.mod, transform.get_pipeline()(Model))


def test_a_table_and_diffs_tell_what_changed() -> None:
    found = transform.explain(Model, transform.Sequential([Normalize(), LegalizeOps()]))
    header, _, *rows = str(found).splitlines()
    assert header.split() == ["pass", "ms", "added", "removed", "changed", "functions", "bindings"]
    assert [row.split()[0] for row in rows] == ["sequential", "Normalize", "LegalizeOps"]
    assert rows[2].split()[2:] == ["2", "1", "1", "->", "3", "2"]
    text = found.diff()
    assert text == found.diff("LegalizeOps")
    assert "--- main before LegalizeOps\n+++ main after LegalizeOps\n" in text
    assert '-        lv: R.Tensor((2, 3), dtype="float32") = R.add(x, x)\n' in text
    assert "+def add(" in text
    assert found.diff("Normalize") == ""
    shown = found._repr_html_()
    assert ">&nbsp;&nbsp;" in shown  # the passes of a pipeline are indented
    assert shown.count("<details>") == 1
    assert "R.add(x, x)" in shown


def test_removed_functions() -> None:
    @transform.module_pass(opt_level=0)
    def without_main(mod: relaxpy.IRModule, ctx: transform.PassContext) -> relaxpy.IRModule:
        result = mod.clone()
        del result["main"]
        return result

    (run,) = transform.explain(Model, without_main)
    assert run.changes == {"main": "removed"}
    assert "-def main(" in run.diff()


def test_the_context_decides_which_passes_run() -> None:
    with transform.PassContext(disabled_pass=["LegalizeOps"]):
        found = transform.explain(Model, "legalize")
    assert [run.name for run in found] == ["legalize", "Normalize"]
    assert found.mod is Model


def test_errors_of_passes_and_of_arguments() -> None:
    @transform.module_pass(opt_level=0)
    def failing(mod: relaxpy.IRModule, ctx: transform.PassContext) -> relaxpy.IRModule:
        raise TransformError("not this one")

    with pytest.raises(TransformError, match="not this one") as caught:
        transform.explain(Model, failing)
    assert "in pass failing" in caught.value.__notes__
    with pytest.raises(UnknownNameError, match="no pipeline 'defualt'"):
        transform.explain(Model, "defualt")
    with pytest.raises(MisuseError, match="expected a pipeline or a pass"):
        transform.explain(Model, 3)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="takes an IRModule"):
        transform.explain(3)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="no pass 'Gradient' ran"):
        transform.explain(Model).diff("Gradient")


Constants = graph("""
def main(x: f32[2, 3]):
    c = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
    y = R.multiply(x, c)
    return y
""")


def test_passes_that_a_pass_runs_for_its_own_purposes_are_not_shown() -> None:
    found = transform.explain(Constants)
    assert {run.depth for run in found} == {0, 1}
    assert [run.name for run in found].count("LegalizeOps") == 1
    assert "--- main before FoldConstant" in found.diff("FoldConstant")
    assert found.diff("FoldConstant") in found.diff()
    assert transform.explain(Model, transform.Sequential([Normalize()])).runs[1].depth == 1
