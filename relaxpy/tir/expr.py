"""Scalar expressions, under TVM's module name: all names of `tir`, and those of `==` and `!=`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy import tir as tir
    from relaxpy.tir import *
    from relaxpy.tir import EQ as EqualOp, NE as NotEqualOp
else:
    _face(
        globals(),
        """
        relaxpy.: tir
        relaxpy.tir: * EqualOp=EQ NotEqualOp=NE
        """,
    )
