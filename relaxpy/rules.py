"""The rules that errors cite, explained: a sentence and two programs for each."""

from __future__ import annotations

import html
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from textwrap import fill, indent
from types import MappingProxyType

from typing_extensions import override

from relaxpy.errors import UnknownNameError, check_type, close_names
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import program_html


@dataclass(frozen=True, slots=True)
class Family:
    """The rules of one subject, whose IDs begin with `name`."""

    name: str
    title: str


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """One rule of the language; `str` explains it, and so does its display in a notebook.

    `good` is an example that follows the rule, and `bad` is one that breaks it, whose error cites
    the rule or what `cites` names ("WF-10 and WF-14d" if two are broken at once). A rule that no
    program can break, as it says what a value or an answer is, has a `contrast` in place of `bad`:
    a close program to which it does not apply. All are Python code after the imports at the
    beginning of docs/language.md.
    """

    id: str
    family: Family
    sentence: str
    good: str | None = None
    bad: str | None = None
    contrast: str | None = None
    cites: str | None = None

    @override
    def __str__(self) -> str:
        text = fill(f"{self.id} ({self.family.title}): {self.sentence}", 88)
        for title, program in self.programs:
            text += f"\n\n{title}:\n\n{indent(program, '    ')}"
        return text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title = f"<b>{self.id}</b> ({html.escape(self.family.title)}): "
        text = f"<p>{title}{html.escape(self.sentence)}</p>"
        for name, program in self.programs:
            text += f"<p>{name}:</p>{program_html(html.escape(program))}"
        return text

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """The examples, each with what it shows."""
        cited = f" (the error cites {self.cites})" if self.cites else ""
        examples = (
            ("A program that follows it", self.good),
            (f"A program that breaks it{cited}", self.bad),
            ("A close program to which it does not apply", self.contrast),
        )
        return tuple((title, program) for title, program in examples if program is not None)


@cache
def all_rules() -> Mapping[str, Rule]:
    """All rules by ID, in the order of families and numbers."""
    text = files("relaxpy").joinpath("rules.toml").read_text(encoding="utf-8")
    rules = {}
    for name, table in tomllib.loads(text).items():
        family = Family(name, table["title"])
        for number, sentence in table["rules"].items():
            example = table.get("examples", {}).get(number, {})
            programs = {key: program.strip("\n") for key, program in example.items()}
            rule = Rule(f"{name}-{number}", family, sentence, **programs)
            rules[rule.id] = rule
    return MappingProxyType(rules)


@user_facing
def explain(rule: str) -> Rule:
    """The rule with this ID, which errors show in brackets; `print` explains it.

    >>> print(explain("DT-6").sentence)
    A Boolean element is 1 for true and 0 for false.

    Errors:
        UnknownNameError (also KeyError): there is no such rule.
        MisuseError (also TypeError): `rule` is not a string.
    """
    check_type(rule, str, "the ID of a rule is a string")
    rules = all_rules()
    family, _, number = rule.strip().strip("[]").partition("-")
    name = f"{family.upper()}-{number.lower()}"
    if name in rules:
        return rules[name]
    candidates = [known for known in rules if known.startswith(name)]
    hint = f"there are {', '.join(candidates)}" if candidates else close_names(name, rules)
    raise UnknownNameError(f"there is no rule {rule!r}", hint=hint, about=rule)
