"""Rows of parametrised tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def by_rule(
    tables: Iterable[tuple[pytest.MarkDecorator, Iterable[tuple[Any, ...]]]],
) -> list[Any]:
    """A row for each case of each mark `rule`, named after its first rule and its number there."""
    return [
        pytest.param(*case, marks=mark, id=f"{mark.args[0]}-{number}")
        for mark, cases in tables
        for number, case in enumerate(cases)
    ]
