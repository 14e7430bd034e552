"""What programs are compiled for."""

from relaxpy.ir.core.target import Target, TargetKind

__all__ = ["Target", "TargetKind"]
