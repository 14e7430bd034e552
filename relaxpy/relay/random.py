"""Operators of random numbers: the functions that build their calls, and their generators."""

from typing import TYPE_CHECKING

from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.op.random import threefry_key as threefry_key

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(f"random.{name}")
