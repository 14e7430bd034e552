"""How operators are given a legalisation."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.transform.legalize_ops.common")
if TYPE_CHECKING:
    from relaxpy.ir.passes.legalize import register_legalize as register_legalize
