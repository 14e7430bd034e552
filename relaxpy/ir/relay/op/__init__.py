"""Operators of Relay: their registry, their relations, and one file for each family."""

from relaxpy.ir.relay.op import (
    annotations as annotations,
    blocks as blocks,
    dynamic as dynamic,
    elementwise as elementwise,
    nn as nn,
    quantized as quantized,
    slices as slices,
    tensor as tensor,
    vision as vision,
)

from relaxpy.ir.relay.op import gradients as gradients  # isort: skip  # of all operators before
from relaxpy.ir.relay.op import (  # isort: skip  # of all operators before
    functions as functions,
    functions_nn as functions_nn,
)
