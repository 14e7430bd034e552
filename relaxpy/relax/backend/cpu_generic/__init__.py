"""The pipelines of processors."""

from relaxpy.relax.pipeline import (
    dataflow_lower_passes as dataflow_lower_passes,
    finalize_passes as finalize_passes,
    get_default_pipeline as get_default_pipeline,
    legalize_passes as legalize_passes,
    library_dispatch_passes as library_dispatch_passes,
)
