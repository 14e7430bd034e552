"""Pipelines of passes, and their stages for a target."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.pipeline")
if TYPE_CHECKING:
    from relaxpy.ir.transform import get_pipeline as get_pipeline, register_pipeline as register_pipeline
    from relaxpy.tvm.pipelines import dataflow_lower_passes as dataflow_lower_passes, default_build_pipeline as default_build_pipeline, finalize_passes as finalize_passes, get_default_pipeline as get_default_pipeline, legalize_passes as legalize_passes, library_dispatch_passes as library_dispatch_passes, zero_pipeline as zero_pipeline
