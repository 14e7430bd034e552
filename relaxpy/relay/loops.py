"""Loops as recursive functions."""

from relaxpy.ir.relay.loops import while_loop

__all__ = ["while_loop"]
