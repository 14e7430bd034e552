"""Annotations of TVM's compiler: the functions that build their calls."""

from typing import TYPE_CHECKING

from relaxpy.ir.relay.op.makers import maker

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(f"annotation.{name}")
