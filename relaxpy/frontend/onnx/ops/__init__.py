"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.onnx.ops import (
    conv as conv,
    elementwise as elementwise,
    linear as linear,
    movement as movement,
    pool as pool,
    recurrent as recurrent,
    reduce as reduce,
    resize as resize,
    text as text,
)
