"""The legalisations of operators, where users of TVM look for them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.transform.legalize_ops")
if TYPE_CHECKING:
    from relaxpy.relax.transform.legalize_ops import common as common
