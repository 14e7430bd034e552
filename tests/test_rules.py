"""relaxpy.explain, and the language reference, which lists all rules."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError, UnknownNameError
from relaxpy.rules import Rule, all_rules
from tests.script.marked import check_marks
from tests.test_docs import python_of

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "language-reference.md"
RULES = all_rules()
BROKEN = [rule.id for rule in RULES.values() if rule.bad]
FAMILIES = {rule.family.name for rule in RULES.values()}
#: What example programs find imported: the same as on docs/language.md.
IMPORTS = python_of((ROOT / "docs" / "language.md").read_text("utf-8")).partition("\n\nones")[0]


def run(program: str, folder: Path) -> None:
    file = folder / "example.py"
    file.write_text(f"{IMPORTS}\n{program}\n", encoding="utf-8")
    runpy.run_path(str(file))


@pytest.mark.parametrize("name", RULES)
def test_a_program_that_follows_a_rule_is_accepted_and_so_is_a_close_one(name, tmp_path) -> None:
    good, contrast = RULES[name].good, RULES[name].contrast
    assert good is not None
    run(good, tmp_path)
    if contrast is None:
        assert RULES[name].bad is not None
    else:
        run(contrast, tmp_path)


@pytest.mark.parametrize("name", BROKEN)
def test_a_program_that_breaks_a_rule_is_told_that_rule(name: str, tmp_path: Path) -> None:
    bad = RULES[name].bad
    assert bad is not None
    with pytest.raises(RelaxpyError) as caught:
        run(bad, tmp_path)
    cited = RULES[name].cites or name
    assert " and ".join(str(d.rule) for d in caught.value.diagnostics) == cited


def test_every_rule_in_code_and_tests_has_a_sentence() -> None:
    named = re.compile(r"""(["'])([A-Z]{2,3}-\d+[a-z]?)\1""")
    files = [*(ROOT / "relaxpy").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    found = {
        rule
        for file in files
        if file != Path(__file__)
        for _, rule in named.findall(file.read_text(encoding="utf-8"))
        if rule.partition("-")[0] in FAMILIES
    }
    made_up = {"WF-1", "WF-2"}  # in tests/ir/test_nodes_errors.py
    assert found - RULES.keys() == made_up


def test_no_module_hides_rules_in_a_range() -> None:
    ranges = re.compile(r"\b[A-Z]{2,3}-\d+[a-z]?(?: to |\.\.|-| through )(?:[A-Z]{2,3}-)?\d")
    for file in (ROOT / "relaxpy").rglob("*.py"):
        assert not ranges.findall(file.read_text(encoding="utf-8")), file


def test_every_sentence_is_one_sentence() -> None:
    for rule in RULES.values():
        assert rule.sentence.endswith(".")
        assert ". " not in rule.sentence, rule.id
        assert len(rule.sentence) <= 200, rule.id


def test_the_page_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "rules.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/rules.py"


def test_the_pages_show_each_rule_with_its_programs(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "rules.py"), "--pages", str(tmp_path)]
    subprocess.run(tool, check=True, cwd=ROOT)
    shown = []
    for page in (tmp_path / "reference").iterdir():
        _, *entries = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        shown += [entry.split("\n\n", 1) for entry in entries]
    assert sorted(name for name, _ in shown) == sorted(RULES)
    for name, text in shown:
        rule = RULES[name]
        for _, program in rule.programs:
            assert f"```python\n{program}\n```\n" in text
        [error] = re.findall(r"^```text\n(.*?)\n```", text, re.M | re.S) or [""]
        for cited in (rule.cites or name).split(" and ") if rule.bad else ():
            assert f"[{cited}]" in error


MARKED = re.findall(r"^```text\n(@.*?)^```$", REFERENCE.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("program", MARKED, ids=range(len(MARKED)))
def test_the_reference_marks_the_errors_of_a_program(program: str) -> None:
    check_marks(program)


@pytest.mark.parametrize("spelling", ["WF-6a", "wf-6A", "[WF-6a]", " WF-6a\n"])
def test_an_id_is_found_as_an_error_shows_it_and_in_any_case(spelling: str) -> None:
    assert relaxpy.explain(spelling).id == RULES["WF-6a"].id == "WF-6a"


def test_an_explanation_has_sentence_family_and_programs() -> None:
    rule = relaxpy.explain("WF-6a")
    assert rule.bad is not None
    assert rule.good is not None
    text = str(rule)
    assert text == repr(rule)
    assert " ".join(text.split()).startswith(f"WF-6a (well-formedness): {rule.sentence}")
    assert "    @R.function\n    def main(" in text
    assert text.index("follows it") < text.index("breaks it")
    assert max(map(len, text.splitlines())) <= 88


def test_a_notebook_shows_an_explanation_as_html() -> None:
    shown = Rule("X-1", RULES["WF-6a"].family, "a < b & c.", bad="if a < b: ...")._repr_html_()
    assert "<b>X-1</b> (well-formedness): a &lt; b &amp; c." in shown
    assert ">if a &lt; b: ...</pre>" in shown
    assert "follows" not in shown


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("WF-6", "there are WF-6a, WF-6b"),
        ("FW-6a", "did you mean 'WF-6a'?"),
        ("PX-99", "did you mean 'PX-9'?"),
        ("nothing", None),
    ],
)
def test_an_unknown_rule_is_an_error_with_close_names(name: str, hint: str | None) -> None:
    with pytest.raises(UnknownNameError) as caught:
        relaxpy.explain(name)
    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (f"there is no rule {name!r}", hint)


def test_a_rule_is_named_by_a_string() -> None:
    with pytest.raises(MisuseError, match="the ID of a rule is a string, found 6"):
        relaxpy.explain(6)  # type: ignore[arg-type]
