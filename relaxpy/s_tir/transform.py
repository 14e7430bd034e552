"""`tir.transform`, under the name of TVM after v0.22."""

# Written by tools/faces.py from relaxpy/names.toml.
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.tir.transform import *
else:
    from relaxpy.tir import transform

    sys.modules[__name__] = transform
