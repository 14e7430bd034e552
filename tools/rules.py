"""Write docs/rules.md, a table of the families of rules, and the pages of the site about them.

The sentences and programs are in `relaxpy/rules.toml`; the modules that cite a rule and its tests
are read off the source. `make format` writes the table, which a test compares with the rules; `make
docs` has a page for each family, and `--pages FOLDER` writes them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from docstrings import escaped, toctree, written_or_checked

from relaxpy.rules import Family, Rule, all_rules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"
HEAD = """# Rules

Errors cite the rule that a program breaks, as in `[WF-6a]`. `relaxpy.explain("WF-6a")`, or
`relaxpy explain WF-6a`, shows its sentence, a program that follows it, and one that breaks it or,
where none can, a close one to which it does not apply.
[rules.toml](../relaxpy/rules.toml) has the sentences of all rules. The site that `make docs` builds
has a page for each family, with the programs, the modules that enforce a rule, and its tests.
The page is written by tools/rules.py.

| family | subject | rules |
| --- | --- | --- |
"""


def rules_named(text: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the rule IDs that occur in the text of a module."""
    return set(pattern.findall(text))


def rules_reported(source: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the rule IDs that are whole string literals, as in errors and pytest marks."""
    if not pattern.search(source):
        return set()
    nodes = ast.walk(ast.parse(source))
    literals = (node.value for node in nodes if isinstance(node, ast.Constant))
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
        for rule in rules_reported(text, pattern):
            reporting[rule].append(name)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT / "tests").as_posix(), path.read_text(encoding="utf-8")
        for rule in rules_reported(text, pattern):
            testing[rule].append(name)
    return {**citing, **reporting}, testing


def entry(rule: Rule, modules: Sequence[str], tests: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one rule."""
    yield f"\n## {rule.id}\n\n{escaped(rule.sentence)}\n"
    for heading, program in rule.programs:
        yield f"\n{heading}:\n\n```python\n{program}\n```\n"
    if modules:
        yield f"\nIn {', '.join(f'`relaxpy/{name}`' for name in modules)}.\n"
    if tests:
        yield f"\nTests: {', '.join(f'`tests/{name}`' for name in tests)}.\n"


def families() -> list[tuple[Family, list[Rule]]]:
    """Return the families, each with its rules."""
    rules = all_rules().values()
    return [(family, list(members)) for family, members in groupby(rules, key=lambda r: r.family)]


def page(*, linked: bool = False) -> str:
    """Return the text of the page of all families."""
    out = [HEAD]
    for family, members in families():
        name = f"[{family.name}](rules/{family.name}.md)" if linked else f"`{family.name}`"
        out.append(f"| {name} | {family.title} | {len(members)} |\n")
    return "".join(out)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page of the site about rules."""
    modules, tests = citations(all_rules())
    listed = []
    for family, members in families():
        listed.append(f"rules/{family.name}.md")
        out = [f"# {family.name}: {family.title}\n\n{family.intro}\n"]
        for rule in members:
            out += entry(rule, modules.get(rule.id, ()), tests.get(rule.id, ()))
        yield listed[-1], "".join(out)
    yield "rules.md", page(linked=True) + toctree(listed)


if __name__ == "__main__":
    sys.exit(written_or_checked(PAGE, page, pages))
