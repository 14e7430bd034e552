"""Write the tables of docs/language-reference.md, and the pages of the site about the language.

The sentences and programs are in `relaxpy/rules.toml`; the modules that cite a rule and its tests
are read off the source. A comment at the end of each section of the page names its rules, or a
family for all rules of it that no section names. `make format` writes the tables, which a test
compares with the rules; `make docs` has a page for each section, and `--pages FOLDER` writes them.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docstrings import escaped, toctree, written_or_checked

from relaxpy.errors import RelaxpyError
from relaxpy.rules import Rule, all_rules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "language-reference.md"


def rules_named(text: str, pattern: re.Pattern[str]) -> set[str]:
    """The rule IDs that occur in the text of a module."""
    return set(pattern.findall(text))


def rules_reported(source: str, pattern: re.Pattern[str]) -> set[str]:
    """The rule IDs that are whole string literals, as in errors and pytest marks."""
    if not pattern.search(source):
        return set()
    nodes = ast.walk(ast.parse(source))
    literals = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {text for text in literals if isinstance(text, str) and pattern.fullmatch(text)}


def citations(rules: Mapping[str, Rule]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The modules that enforce each rule and the test files that name it, by ID.

    Modules that report the rule in an error enforce it; if there are none, the modules that cite
    it in a docstring or comment do.
    """
    families = "|".join(dict.fromkeys(rule.family.name for rule in rules.values()))
    pattern = re.compile(rf"\b(?:{families})-\d+[a-z]?\b")
    reporting, citing, testing = (defaultdict[str, list[str]](list) for _ in range(3))
    for path in sorted((ROOT / "relaxpy").rglob("*.py")):
        name, text = path.relative_to(ROOT / "relaxpy").as_posix(), path.read_text(encoding="utf-8")
        for rule in rules_named(text, pattern):
            citing[rule].append(name)
        for rule in rules_reported(text, pattern):
            reporting[rule].append(name)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT / "tests").as_posix(), path.read_text(encoding="utf-8")
        for rule in rules_reported(text, pattern):
            testing[rule].append(name)
    return {**citing, **reporting}, testing


def imported() -> dict[str, Any]:
    """The names that programs of rules find imported: those of docs/language.md."""
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("\n\nones")[0], names)
    return names


def error_of(program: str, names: Mapping[str, Any]) -> str:
    """The text of the error of a program that breaks a rule."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "example.py"
        file.write_text(f"{program}\n", encoding="utf-8")
        try:
            runpy.run_path(str(file), dict(names))
        except RelaxpyError as error:
            return str(error).replace(f"{folder}/", "")
    raise SystemExit(f"this program breaks no rule:\n{program}")


def entry(
    rule: Rule, modules: Sequence[str], tests: Sequence[str], names: Mapping[str, Any]
) -> Iterator[str]:
    """The lines of one rule."""
    yield f"\n## {rule.id}\n\n{escaped(rule.sentence)}\n"
    for heading, program in rule.programs:
        yield f"\n{heading}:\n\n```python\n{program}\n```\n"
    if rule.bad is not None:
        yield f"\n```text\n{error_of(rule.bad, names)}\n```\n"
    if modules:
        yield f"\nIn {', '.join(f'`relaxpy/{name}`' for name in modules)}.\n"
    if tests:
        yield f"\nTests: {', '.join(f'`tests/{name}`' for name in tests)}.\n"


def sections() -> Iterator[tuple[str, str, list[Rule]]]:
    """The title, the text and the rules of each section of the page.

    Errors:
        SystemExit: a rule is in no section, or in two.
    """
    _, *parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    split = [re.split(r"^<!-- rules:(.*) -->$", part, flags=re.MULTILINE) for part in parts]
    named = [name for part in split for name in part[1].split()]
    if len(named) != len(set(named)):
        raise SystemExit("two sections of docs/language-reference.md name one rule")
    rest = [rule for rule in all_rules().values() if rule.id not in named]
    if missing := {rule.family.name for rule in rest} - set(named):
        raise SystemExit(f"no section of docs/language-reference.md has rules of {sorted(missing)}")
    for part in split:
        rules = [
            rule
            for name in part[1].split()
            for rule in ([all_rules()[name]] if "-" in name else rest)
            if name in (rule.id, rule.family.name)
        ]
        yield part[0].partition("\n")[0], f"{part[0]}<!-- rules:{part[1]} -->\n", rules


def introduction() -> str:
    """The text above the sections."""
    return PAGE.read_text(encoding="utf-8").partition("\n## ")[0]


def page() -> str:
    """The text of the page: each section with a table of its rules."""
    out = [introduction()]
    for _, text, rules in sections():
        out.append(f"\n## {text}")
        if rules:
            out.append("\n| rule | |\n| --- | --- |\n")
            out += [f"| {rule.id} | {escaped(rule.sentence)} |\n" for rule in rules]
    return "".join(out)


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page of the site about the language."""
    modules, tests = citations(all_rules())
    names = imported()
    listed = []
    for title, text, rules in sections():
        listed.append(f"reference/{re.sub(r'[^a-z]+', '-', title.lower())}.md")
        out = ["# ", re.sub(r"\]\((?!https?:)", "](../", text)]
        for rule in rules:
            out += entry(rule, modules.get(rule.id, ()), tests.get(rule.id, ()), names)
        yield listed[-1], "".join(out)
    yield "language-reference.md", introduction() + toctree(listed)


if __name__ == "__main__":
    sys.exit(written_or_checked(PAGE, page, pages))
