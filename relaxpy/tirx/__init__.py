"""The loop level, under the name of TVM after v0.22: it is `relaxpy.tir`."""

# Written by tools/faces.py from relaxpy/names.toml.
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.tir import *
else:
    from relaxpy import tir

    sys.modules[__name__] = tir
