"""Further tools, under TVM's module names."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.contrib import tvmjs

__all__ = ["tvmjs"]

_hint_at_absent(globals())
