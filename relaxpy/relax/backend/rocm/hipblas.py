"""The products of matrices that hipBLAS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
import relaxpy.tvm.libraries.patterns as _hipblas  # registers patterns

_face(globals(), "relaxpy.relax.backend.rocm.hipblas")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import partition_for_hipblas as partition_for_hipblas
