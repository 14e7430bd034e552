"""Rows of parametrised tests."""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from tests.fuzz.seed import SEED

T = TypeVar("T")
_CONFIG: list[pytest.Config] = []


def configure(config: pytest.Config) -> None:
    _CONFIG[:] = [config]


def targets(name: str) -> tuple[str, ...]:
    """The target, drawn by a name, of a program whose importer is tested; both in `make test-all`.

    What kernels compute is tested for both targets by the tables of operators.
    """
    both = ("native", "numpy")
    if _CONFIG[0].getoption("--whole-table"):
        return both
    return (random.Random(f"{SEED} {name}").choice(both),)


def by_rule(table: str) -> list[Any]:
    """The cases of a table, each named after its first rule and its number there.

    A line is `RULES: case`; lines that begin with a space continue the one before.
    """
    cases: list[Any] = []
    numbers: Counter[str] = Counter()
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        rules, _, case = line.partition(": ")
        first = rules.split()[0]
        cases.append(pytest.param(case, id=f"{first}-{numbers[first]}"))
        numbers[first] += 1
    return cases


def draw(config: pytest.Config, rows: Sequence[T], group: Callable[[T], str]) -> list[T]:
    """A tenth of the rows of each group, one at least, drawn with the seed.

    `make test-all` runs all of them (`--whole-table`).
    """
    if config.getoption("--whole-table"):
        return list(rows)
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(group(row), []).append(number)
    chosen: set[int] = set()
    for name, numbers in groups.items():
        count = -(-len(numbers) // 10)
        chosen.update(random.Random(f"{SEED} {name}").sample(numbers, count))
    return [row for number, row in enumerate(rows) if number in chosen]


def sections(text: str) -> dict[str, str]:
    """The texts of a table by their names, each in the line `--- name` before its text."""
    found = {}
    for section in re.split(r"^--- ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        found[name] = body
    return found


def table(text: str) -> list[list[str]]:
    """The columns of each line, which ` <- `, ` : ` and ` => ` divide.

    Lines that begin with a space continue the one before.
    """
    lines = re.sub(r"\n +", " ", text).strip().splitlines()
    return [re.split(r" *(?: : |<-|=>) *", line) for line in lines]
