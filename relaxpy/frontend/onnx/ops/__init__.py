"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.onnx.ops import (
    elementwise as elementwise,
    linear as linear,
    movement as movement,
    reduce as reduce,
)
