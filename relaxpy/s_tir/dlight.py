"""`dlight`, under the name of TVM after v0.22."""

# Written by tools/faces.py from relaxpy/names.toml.
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.dlight import *
else:
    from relaxpy import dlight

    sys.modules[__name__] = dlight
