"""The registry of Relay operators, and the functions that build their calls."""

from typing import TYPE_CHECKING

from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.op.registry import (
    Op as Op,
    list_op_names as list_op_names,
    register as register,
    register_compute as register_compute,
)

get = Op.get


if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(name)
