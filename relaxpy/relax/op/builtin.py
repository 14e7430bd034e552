"""Builtins."""

from relaxpy.ir.relax.op.builtin import (
    alloc_tensor as alloc_tensor,
    stop_lift_params as stop_lift_params,
)
