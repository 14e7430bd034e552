"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.onnx.ops import (
    attention as attention,
    conv as conv,
    control as control,
    elementwise as elementwise,
    images as images,
    linear as linear,
    losses as losses,
    movement as movement,
    normalize as normalize,
    pool as pool,
    quantized as quantized,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    signal as signal,
    text as text,
)
