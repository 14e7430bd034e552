"""The products of matrices that hipBLAS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face
import relaxpy.ir.relax.transform.fusion.hipblas as _hipblas  # registers patterns

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.fusion.hipblas import partition_for_hipblas as partition_for_hipblas
else:
    _face(globals(), """
        relaxpy.ir.relax.transform.fusion.hipblas: partition_for_hipblas
    """)
