"""The registry of patterns by name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.fusion import (
        get_pattern as get_pattern,
        get_patterns_with_prefix as get_patterns_with_prefix,
        register_patterns as register_patterns,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.dpl.fusion: get_pattern get_patterns_with_prefix register_patterns
        """,
    )
