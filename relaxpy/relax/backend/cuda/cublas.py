"""The products of matrices that cuBLAS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
import relaxpy.tvm.libraries.patterns as _cublas  # registers patterns

_face(globals(), "relaxpy.relax.backend.cuda.cublas")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import partition_for_cublas as partition_for_cublas
