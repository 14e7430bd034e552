"""What programs are compiled for."""

from relaxpy.ir.core.target import Target, TargetKind
from relaxpy.missing import hint_at_absent as _hint_at_absent

__all__ = ["Target", "TargetKind"]

_hint_at_absent(globals())
