"""Comparison of the values that functions return."""

from typing import Any

import numpy as np


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
