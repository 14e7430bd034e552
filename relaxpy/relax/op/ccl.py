"""Collective communication."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.ccl")
if TYPE_CHECKING:
    from relaxpy.ir.ops.ccl import allgather as allgather, allreduce as allreduce, broadcast_from_worker0 as broadcast_from_worker0, gather_to_worker0 as gather_to_worker0, reduce_scatter as reduce_scatter, reduce_to_worker0 as reduce_to_worker0, scatter_from_worker0 as scatter_from_worker0
