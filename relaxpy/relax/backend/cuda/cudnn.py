"""The convolutions and the attention that cuDNN computes."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face
import relaxpy.ir.relax.transform.fusion.cudnn as _cudnn  # registers patterns

if TYPE_CHECKING:
    from relaxpy.ir.relax.transform.fusion.cudnn import partition_for_cudnn as partition_for_cudnn
else:
    _face(globals(), """
        relaxpy.ir.relax.transform.fusion.cudnn: partition_for_cudnn
    """)
