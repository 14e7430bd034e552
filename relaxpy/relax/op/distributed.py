"""Operators on distributed tensors."""

from relaxpy.ir.relax.op.distributed import (
    annotate_sharding as annotate_sharding,
    call_tir_local_view as call_tir_local_view,
    redistribute as redistribute,
    redistribute_replica_to_shard as redistribute_replica_to_shard,
)
