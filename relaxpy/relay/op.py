"""The registry of Relay operators, and the functions that build their calls."""

from typing import TYPE_CHECKING

from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.op.registry import (
    Op,
    list_op_names,
    register,
    register_compute,
    register_gradient,
)

get = Op.get

__all__ = ["Op", "get", "list_op_names", "register", "register_compute", "register_gradient"]

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(name)
