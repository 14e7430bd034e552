"""Write docs/rules.md: each rule with its sentence, the modules that cite it and its tests.

The sentences are in `relaxpy/rules.toml`; the rest is read off the source. `make format` runs it; a
test compares the file with the source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from relaxpy.rules import Rule, all_rules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"
HEAD = """# Rules

Errors cite the rule that a program breaks, as in `[WF-6a]`. This page lists every rule in one
sentence, with the modules of `relaxpy` that enforce it and the tests that name it.
`relaxpy.explain("WF-6a")` shows the same sentence, and for some rules a program that breaks it.
The page is written by tools/rules.py.

| family | subject |
| --- | --- |
"""


def rules_named(text: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the rule IDs that occur in the text of a module."""
    return set(pattern.findall(text))


def rules_reported(tree: ast.AST, pattern: re.Pattern[str]) -> set[str]:
    """Return the rule IDs that are whole string literals, as in errors and pytest marks."""
    literals = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text for text in literals if isinstance(text, str) and pattern.fullmatch(text)}


def citations(rules: Mapping[str, Rule]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the modules that enforce each rule and the test files that name it, by ID.

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
        for rule in rules_reported(ast.parse(text), pattern):
            reporting[rule].append(name)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT / "tests").as_posix(), path.read_text(encoding="utf-8")
        for rule in rules_reported(ast.parse(text), pattern):
            testing[rule].append(name)
    return {**citing, **reporting}, testing


def entry(rule: Rule, modules: Sequence[str], tests: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one rule."""
    yield f"- **{rule.id}** {rule.sentence}\n"
    if modules:
        yield f"  In {', '.join(f'`{name}`' for name in modules)}.\n"
    if rule.bad:
        yield f'  Example: `relaxpy.explain("{rule.id}")`.\n'
    if tests:
        yield f"  Tests: {', '.join(f'`{name}`' for name in tests)}.\n"


def page() -> str:
    """Return the text of the page."""
    rules = all_rules()
    modules, tests = citations(rules)
    families = [
        (family, list(members))
        for family, members in groupby(rules.values(), key=lambda rule: rule.family)
    ]
    out = [HEAD]
    for family, _ in families:
        out.append(f"| [{family.name}](#{family.name.lower()}) | {family.title} |\n")
    for family, members in families:
        out.append(f"\n## {family.name}\n\n{family.intro}\n\n")
        for rule in members:
            out += entry(rule, modules.get(rule.id, ()), tests.get(rule.id, ()))
    return "".join(out)


def main() -> int:
    """Write the page; with `--check`, return whether it is outdated instead."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(PAGE.read_text(encoding="utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
