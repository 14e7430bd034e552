"""What programs are compiled for."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.ir.core.target import Target, TargetKind

__all__ = ["Target", "TargetKind"]

_hint_at_absent(globals())
