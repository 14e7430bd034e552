"""The products, convolutions, attention and normalisations that CUTLASS computes."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face
import relaxpy.ir.relax.transform.fusion.cutlass as _cutlass  # registers patterns

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.fusion.cutlass import partition_for_cutlass as partition_for_cutlass
else:
    _face(globals(), """
        relaxpy.ir.relax.transform.fusion.cutlass: partition_for_cutlass
    """)
