"""`tir.analysis`, under the name of TVM after v0.22."""

# Written by tools/faces.py from relaxpy/names.toml.
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.tir.analysis import *
else:
    from relaxpy.tir import analysis

    sys.modules[__name__] = analysis
