"""Loops as recursive functions."""

from relaxpy.ir.relay.loops import while_loop as while_loop
