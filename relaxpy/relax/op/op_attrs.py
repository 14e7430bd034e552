"""The classes of attributes of calls."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    pass
else:
    _face(globals(), """
    """, "relaxpy.tvm.relax.op_attrs:attributes")
