"""Assertions for tests of programs and their results."""

from relaxpy.exec.runtime.compare import assert_allclose
from relaxpy.ir.equality.structural import assert_structural_equal

__all__ = [
    "assert_allclose",
    "assert_structural_equal",
]
