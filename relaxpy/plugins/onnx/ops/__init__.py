"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.plugins.onnx.ops import (
    attention as attention,
    branches as branches,
    classical as classical,
    conv as conv,
    creation as creation,
    elementwise as elementwise,
    images as images,
    loops as loops,
    microsoft as microsoft,
    microsoft_quantized as microsoft_quantized,
    movement as movement,
    normalize as normalize,
    quantized as quantized,
    recurrent as recurrent,
    reduce as reduce,
    sequences as sequences,
    signal as signal,
    training as training,
    trees as trees,
)
