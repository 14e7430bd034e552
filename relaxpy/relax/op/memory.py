"""Explicit memory."""

from relaxpy.ir.relax.op.memory import (
    alloc_storage as alloc_storage,
    alloc_tensor as alloc_tensor,
    ensure_zero_offset as ensure_zero_offset,
    kill_storage as kill_storage,
    kill_tensor as kill_tensor,
    view as view,
)
