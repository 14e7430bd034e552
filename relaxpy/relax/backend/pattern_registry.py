"""The registry of patterns by name."""

from relaxpy.ir.relax.dpl.fusion import (
    get_pattern as get_pattern,
    get_patterns_with_prefix as get_patterns_with_prefix,
    register_patterns as register_patterns,
)
