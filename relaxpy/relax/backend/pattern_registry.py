"""The registry of patterns by name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
from relaxpy.tvm.libraries import patterns as _patterns  # it registers patterns

_face(globals(), "relaxpy.relax.backend.pattern_registry")
if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.graph import get_pattern as get_pattern, get_patterns_with_prefix as get_patterns_with_prefix, register_patterns as register_patterns
