"""Passes over programs on several devices."""

from relaxpy.ir.relax.transform.distributed.legalize_redistribute import (
    LegalizeRedistribute as LegalizeRedistribute,
)
from relaxpy.ir.relax.transform.distributed.lower_dist_ir import LowerDistIR as LowerDistIR
from relaxpy.ir.relax.transform.distributed.lower_global_view_to_local_view import (
    LowerGlobalViewToLocalView as LowerGlobalViewToLocalView,
)
from relaxpy.ir.relax.transform.distributed.propagate_sharding import (
    PropagateSharding as PropagateSharding,
)
