"""The registry of Relay operators."""

from relaxpy.ir.relay.op.registry import (
    Op,
    list_op_names,
    register,
    register_compute,
    register_gradient,
)

get = Op.get

__all__ = ["Op", "get", "list_op_names", "register", "register_compute", "register_gradient"]
