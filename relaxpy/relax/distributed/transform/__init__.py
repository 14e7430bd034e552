"""Passes over programs on several devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.distributed.transform")
if TYPE_CHECKING:
    from relaxpy.ir.passes.distributed.lower_dist_ir import LegalizeRedistribute as LegalizeRedistribute, LowerDistIR as LowerDistIR, LowerGlobalViewToLocalView as LowerGlobalViewToLocalView
    from relaxpy.ir.passes.distributed.propagate_sharding import PropagateSharding as PropagateSharding
