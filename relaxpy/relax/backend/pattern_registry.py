"""Patterns under the names of backends."""

from relaxpy.ir.relax.dpl.fusion import (
    get_pattern,
    get_patterns_with_prefix,
    register_patterns,
)

__all__ = [
    "get_pattern",
    "get_patterns_with_prefix",
    "register_patterns",
]
