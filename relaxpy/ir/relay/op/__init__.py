"""Operators of Relay: their registry, their relations, and one file for each family."""

from relaxpy.ir.relay.op import (
    annotations as annotations,
    bits as bits,
    blocks as blocks,
    compiler as compiler,
    dynamic as dynamic,
    elementwise as elementwise,
    ethosu as ethosu,
    nn as nn,
    proposals as proposals,
    quantized as quantized,
    random as random,
    regions as regions,
    signal as signal,
    slices as slices,
    sparse as sparse,
    suppression as suppression,
    tensor as tensor,
    transformed as transformed,
    vision as vision,
)

from relaxpy.ir.relay.op import gradients as gradients  # isort: skip  # of all operators before
from relaxpy.ir.relay.op import (  # isort: skip  # of all operators before
    functions as functions,
    functions_nn as functions_nn,
)
