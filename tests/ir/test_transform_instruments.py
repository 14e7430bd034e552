"""Instruments that come with passes: timing, printing, checking."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, WellFormedError
from relaxpy.ir import IRModule, assert_structural_equal, instrument, transform as passes
from relaxpy.ir.passes.rewrite_pass import Normalize
from relaxpy.script import from_source
from tests.ir.relax.graphs import function, module, shape_of, var
from tests.ir.relax.sinfos import tensor


@pytest.fixture
def mod() -> IRModule:
    x = var("x", tensor(2))
    return module(main=function([x], shape_of(x)))


@dataclass(frozen=True)
class Ruin(passes.Pass):
    """Breaks the module."""

    @override
    def transform(self, mod: IRModule, ctx: passes.PassContext) -> IRModule:
        return module(main=function([], var("nowhere", tensor(2))))


def test_instruments_have_a_home_of_their_own() -> None:
    assert all(hasattr(instrument, name) for name in instrument.__all__)
    assert instrument.PassTimingInstrument is passes.PassTimingInstrument


def test_times_are_nested_as_the_passes_are(mod: IRModule) -> None:
    timing = passes.PassTimingInstrument()
    with passes.PassContext(instruments=[timing]):
        passes.Sequential([Normalize(), Normalize()])(mod)
        text = timing.render()
    lines = text.splitlines()
    assert [line.split(":")[0] for line in lines] == ["sequential", "  Normalize", "  Normalize"]
    assert all(re.search(r": \d+\.\d{3} ms \(\d+%\)$", line) for line in lines)
    assert timing.render() == text
    with passes.PassContext(instruments=[timing]):
        assert timing.render() == ""


def test_a_pass_that_fails_takes_no_time_and_holds_no_other(mod: IRModule) -> None:
    @passes.module_pass(opt_level=0, name="fails")
    def fails(mod: IRModule, ctx: passes.PassContext) -> IRModule:
        Normalize()(mod)
        raise TransformError("no")

    timing = passes.PassTimingInstrument()
    with passes.PassContext(instruments=[timing]):
        for step in (fails, Normalize()):
            with contextlib.suppress(TransformError):
                step(mod)
        lines = timing.render().splitlines()
    assert lines[0] == "fails: not done"
    assert [line.split(":")[0] for line in lines] == ["fails", "  Normalize", "Normalize"]


def test_a_pass_can_print(mod: IRModule, capsys: pytest.CaptureFixture[str]) -> None:
    assert passes.PrintIR("before all")(mod) is mod
    assert passes.PrintIR(show_meta_data=True)(mod) is mod
    first, second = capsys.readouterr().out.split("# PrintIR()\n")
    assert first == f"# PrintIR(before all)\n{mod.script()}\n"
    assert second == f"{mod.script(show_meta=True)}\n"


def test_modules_are_printed_around_named_passes(mod, capsys) -> None:
    printing = passes.PassPrintingInstrument(["Normalize"], print_after_pass_names=["sequential"])
    with passes.PassContext(instruments=[printing]):
        passes.Sequential([Normalize()])(mod)
    text = capsys.readouterr().out
    plain = "opt_level: 0, required passes: []"
    assert [line for line in text.splitlines() if re.match("# (Before|After)", line)] == [
        f"# Before Running Pass: pass name: Normalize, {plain}",
        f"# After Running Pass: pass name: sequential, {plain}",
    ]
    assert "def main(x: R.Tensor" in text


def test_modules_are_printed_around_all_passes(mod, capsys) -> None:
    with passes.PassContext(instruments=[passes.PrintBeforeAll(), passes.PrintAfterAll()]):
        Normalize()(mod)
    text = capsys.readouterr().out
    before, after = (
        text.index(f"# {when} Running Pass: pass name: Normalize,") for when in ("Before", "After")
    )
    assert before < after


def test_modules_are_kept_in_files_after_each_pass(mod: IRModule, tmp_path: Path) -> None:
    @passes.module_pass(opt_level=0, name="mine: a/b")
    def mine(mod: IRModule, ctx: passes.PassContext) -> IRModule:
        return mod.with_attr("by", "me")

    place = tmp_path / "a" / "b"
    with passes.PassContext(instruments=[passes.DumpIR(place)]):
        changed = passes.Sequential([Normalize(), mine])(mod)
    names = ["000_Normalize.py", "001_mine__a_b.py", "002_sequential.py"]
    assert sorted(p.name for p in place.iterdir()) == names
    for name in names[1:]:
        text = (place / name).read_text(encoding="utf-8")
        assert_structural_equal(from_source(text), changed)
    own = place / "notes.py"
    own.touch()
    with passes.PassContext(instruments=[passes.DumpIR(place, refresh=True)]):
        Normalize()(mod)
    assert sorted(p.name for p in place.iterdir()) == ["000_Normalize.py", "notes.py"]


def test_modules_are_checked_around_all_passes(mod: IRModule) -> None:
    with passes.PassContext(instruments=[passes.WellFormedInstrument()]):
        Normalize()(mod)
        with pytest.raises(WellFormedError, match="WF-2a") as caught:
            Ruin()(mod)
    assert caught.value.__notes__ == ["after pass Ruin"]
    with (
        passes.PassContext(instruments=[passes.WellFormedInstrument()]),
        pytest.raises(WellFormedError) as caught,
    ):
        Normalize()(Ruin()(mod))
    assert caught.value.__notes__[0].endswith("pass Ruin")


def test_modules_are_checked_after_passes_alone(mod: IRModule) -> None:
    @passes.module_pass(opt_level=0)
    def mend(broken: IRModule, ctx: passes.PassContext) -> IRModule:
        return mod

    broken = Ruin()(mod)
    with passes.PassContext(
        instruments=[passes.WellFormedInstrument(validate_before_transform=False)]
    ):
        assert mend(broken) is mod
        with pytest.raises(WellFormedError) as caught:
            Ruin()(mod)
    assert caught.value.__notes__ == ["after pass Ruin"]
    with (
        passes.PassContext(instruments=[passes.WellFormedInstrument()]),
        pytest.raises(WellFormedError) as caught,
    ):
        mend(broken)
    assert caught.value.__notes__ == ["before pass mend"]


def test_a_pass_that_changes_its_module_is_found(mod: IRModule) -> None:
    @passes.module_pass(opt_level=0)
    def add(mod: IRModule, ctx: passes.PassContext) -> IRModule:
        mod["other"] = mod["main"]
        return mod

    @passes.module_pass(opt_level=0)
    def fail(mod: IRModule, ctx: passes.PassContext) -> IRModule:
        raise TransformError("nothing works")

    with passes.PassContext(instruments=[passes.StructuralInstrument()]):
        assert passes.Sequential([Normalize(), Normalize()])(mod) is not None
        with pytest.raises(TransformError, match="nothing works"):
            passes.Sequential([Normalize(), fail])(mod)
        with pytest.raises(TransformError, match="changed the module") as caught:
            passes.Sequential([Normalize(), add])(mod.clone())
    assert caught.value.__notes__ == ["after pass add"]


@pytest.mark.parametrize(
    ("instrument", "hint"),
    [(3, "derive its class"), (passes.WellFormedInstrument, "create an instance")],
)
def test_other_objects_are_not_instruments(instrument: object, hint: str) -> None:
    with pytest.raises(MisuseError, match=f"expected an instrument(.|\n)*{hint}"):
        passes.PassContext(instruments=[instrument])  # type: ignore[list-item]
    with pytest.raises(MisuseError, match="expected an instrument"):
        passes.PassContext().override_instruments([instrument])  # type: ignore[list-item]


def test_a_folder_is_named_by_a_path() -> None:
    with pytest.raises(MisuseError, match="dump_dir is a path"):
        passes.DumpIR(3)  # type: ignore[arg-type]
