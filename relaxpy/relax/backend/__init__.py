"""What backends look for in programs."""

from relaxpy.relax.backend import pattern_registry, patterns
from relaxpy.relax.backend.pattern_registry import (
    get_pattern,
    get_patterns_with_prefix,
    register_patterns,
)

__all__ = [
    "get_pattern",
    "get_patterns_with_prefix",
    "pattern_registry",
    "patterns",
    "register_patterns",
]
