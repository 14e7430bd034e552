"""Front ends: other ways to describe models."""

from relaxpy.ir.relax.frontend.params import detach_params as detach_params
from relaxpy.lazy import finder as _finder
from relaxpy.relax.frontend import common as common, nn as nn

__getattr__ = _finder(
    globals(), {name: f"relaxpy.relax.frontend.{name}" for name in ("onnx", "torch", "weights")}
)
