"""Integer reasoning, under the name of TVM after v0.26: it is `relaxpy.arith`."""

# Written by tools/faces.py from relaxpy/names.toml.
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.arith import *
else:
    from relaxpy import arith

    sys.modules[__name__] = arith
