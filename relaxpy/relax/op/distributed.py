"""Operators on distributed tensors."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.distributed")
if TYPE_CHECKING:
    from relaxpy.ir.ops.distributed import annotate_sharding as annotate_sharding, call_tir_local_view as call_tir_local_view, redistribute as redistribute, redistribute_replica_to_shard as redistribute_replica_to_shard
