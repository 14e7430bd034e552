"""The legalisations of operators, where users of TVM look for them."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.transform.legalize_ops")
if TYPE_CHECKING:
    from relaxpy.relax.transform.legalize_ops import common as common
