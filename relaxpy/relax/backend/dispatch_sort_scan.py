"""The pass that chooses how sorts and scans are computed."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.dispatch_sort_scan")
if TYPE_CHECKING:
    from relaxpy.relax.backend import DispatchSortScan as DispatchSortScan
