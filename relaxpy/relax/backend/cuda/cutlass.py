"""The products, convolutions, attention and normalisations that CUTLASS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
import relaxpy.tvm.libraries.patterns as _cutlass  # registers patterns

_face(globals(), "relaxpy.relax.backend.cuda.cutlass")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import partition_for_cutlass as partition_for_cutlass
