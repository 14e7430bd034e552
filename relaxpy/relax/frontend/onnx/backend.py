"""relaxpy as a backend of ONNX (`onnx.backend.base`)."""

from relaxpy.frontend.onnx.backend import (
    RelaxpyBackend as RelaxpyBackend,
    RelaxpyRep as RelaxpyRep,
    prepare as prepare,
    run_model as run_model,
    run_node as run_node,
    supports_device as supports_device,
)
