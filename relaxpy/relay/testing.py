"""Helpers of tests."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.testing")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.transform.passes import run_infer_type as run_infer_type, run_opt_pass as run_opt_pass
