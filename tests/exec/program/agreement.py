"""Programs with arguments, and comparison of the values that functions return."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.rows import sections


def agree(found: Any, expected: Any) -> None:
    """Compare values of any nesting, which have the same types."""
    assert type(found) is type(expected)
    if isinstance(expected, tuple) and type(expected) is tuple:
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            agree(*pair)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found == expected


def programs(text: str, names: Mapping[str, Any]) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """The texts of functions and the arguments of `main`, each after `--- name <- arguments`."""
    found = {}
    for title, body in sections(text).items():
        name, _, args = title.partition(" <- ")
        found[name] = (body, eval(f"({args},)", dict(names)))
    return found
