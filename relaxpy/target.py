"""Targets of compilation."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.target")
if TYPE_CHECKING:
    from relaxpy.exec.api.cross import Native as Native
    from relaxpy.ir.core.target import Target as Target, TargetKind as TargetKind
