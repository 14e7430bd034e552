"""The pipelines for CPUs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.cpu_generic")
if TYPE_CHECKING:
    from relaxpy.relax.pipeline import dataflow_lower_passes as dataflow_lower_passes, finalize_passes as finalize_passes, get_default_pipeline as get_default_pipeline, legalize_passes as legalize_passes, library_dispatch_passes as library_dispatch_passes
