"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.onnx.ops import (
    attention as attention,
    control as control,
    classical as classical,
    conv as conv,
    elementwise as elementwise,
    images as images,
    linear as linear,
    losses as losses,
    microsoft as microsoft,
    movement as movement,
    normalize as normalize,
    pool as pool,
    quantized as quantized,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    sequences as sequences,
    signal as signal,
    text as text,
    training as training,
)
