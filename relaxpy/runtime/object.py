"""The base class of nodes."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.core.node import Node as Object
else:
    _face(
        globals(),
        """
        relaxpy.ir.core.node: Object=Node
        """,
    )
