"""Common tensor functions as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.te.topi import *
    from relaxpy.topi import broadcast as broadcast, math as math, reduction as reduction, testing as testing, transform as transform
else:
    _face(globals(), """
        relaxpy.ir.te.topi: *
        relaxpy.topi.: broadcast math reduction testing transform
    """)
