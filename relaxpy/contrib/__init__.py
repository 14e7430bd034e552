"""Further tools, under TVM's module names."""

from relaxpy.contrib import tvmjs, utils
from relaxpy.missing import hint_at_absent as _hint_at_absent

__all__ = ["tvmjs", "utils"]

_hint_at_absent(globals())
