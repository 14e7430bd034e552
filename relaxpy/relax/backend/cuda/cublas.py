"""The products of matrices that cuBLAS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face
import relaxpy.ir.relax.transform.fusion.cublas as _cublas  # registers patterns

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.fusion.cublas import partition_for_cublas as partition_for_cublas
else:
    _face(globals(), """
        relaxpy.ir.relax.transform.fusion.cublas: partition_for_cublas
    """)
