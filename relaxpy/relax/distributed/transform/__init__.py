"""Passes over programs on several devices."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.distributed.legalize_redistribute import LegalizeRedistribute as LegalizeRedistribute
    from relaxpy.ir.relax.transform.distributed.lower_dist_ir import LowerDistIR as LowerDistIR
    from relaxpy.ir.relax.transform.distributed.lower_global_view_to_local_view import LowerGlobalViewToLocalView as LowerGlobalViewToLocalView
    from relaxpy.ir.relax.transform.distributed.propagate_sharding import PropagateSharding as PropagateSharding
else:
    _face(globals(), """
        relaxpy.ir.relax.transform.distributed.legalize_redistribute: LegalizeRedistribute
        relaxpy.ir.relax.transform.distributed.lower_dist_ir: LowerDistIR
        relaxpy.ir.relax.transform.distributed.lower_global_view_to_local_view: LowerGlobalViewToLocalView
        relaxpy.ir.relax.transform.distributed.propagate_sharding: PropagateSharding
    """)
