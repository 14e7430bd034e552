"""Rows of parametrised tests."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from tests.fuzz.seed import SEED

T = TypeVar("T")


def by_rule(tables: Iterable[tuple[pytest.MarkDecorator, Iterable[tuple[Any, ...]]]]) -> list[Any]:
    """A row for each case of each mark `rule`, named after its first rule and its number there."""
    return [
        pytest.param(*case, marks=mark, id=f"{mark.args[0]}-{number}")
        for mark, cases in tables
        for number, case in enumerate(cases)
    ]


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
