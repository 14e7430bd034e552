"""Instructions of the virtual machine."""

from relaxpy.ir.relax.op.vm import (
    alloc_storage as alloc_storage,
    alloc_tensor as alloc_tensor,
    call_tir_dyn as call_tir_dyn,
    kill_object as kill_object,
)
