"""The products of matrices that cuBLAS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.fusion.cublas import (
        partition_for_cublas as partition_for_cublas,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.transform.fusion.cublas: partition_for_cublas
        """,
    )
