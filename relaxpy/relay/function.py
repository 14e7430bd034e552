"""Functions, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relay.expr import Function as Function
else:
    _face(globals(), """
        relaxpy.ir.relay.expr: Function
    """)
