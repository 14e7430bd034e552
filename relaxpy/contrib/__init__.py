"""Further tools, under TVM's module names."""

from relaxpy.contrib import tvmjs
from relaxpy.missing import hint_at_absent as _hint_at_absent

__all__ = ["tvmjs"]

_hint_at_absent(globals())
