"""Operators of Relay: their registry, their relations, and one file for each family."""

from relaxpy.ir.relay.op import (
    annotations as annotations,
    blocks as blocks,
    dynamic as dynamic,
    elementwise as elementwise,
    nn as nn,
    proposals as proposals,
    quantized as quantized,
    signal as signal,
    sparse as sparse,
    suppression as suppression,
    tensor as tensor,
    vision as vision,
)

from relaxpy.ir.relay.op import gradients as gradients  # isort: skip  # of all operators before
