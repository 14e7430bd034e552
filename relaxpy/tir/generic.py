"""Arithmetic of scalars, by name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.tir.intrin import cast as cast
    from relaxpy.tir import (
        add as add,
        div as div,
        div as divide,
        floordiv as floordiv,
        multiply as multiply,
        subtract as subtract,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.tir.intrin: cast
        relaxpy.tir: add div floordiv multiply subtract divide=div
        """,
    )
