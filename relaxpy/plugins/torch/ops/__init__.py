"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.plugins.torch.ops import (
    complex_numbers as complex_numbers,
    control as control,
    creation as creation,
    elementwise as elementwise,
    images as images,
    indexing as indexing,
    layers as layers,
    linear as linear,
    movement as movement,
    prims as prims,
    recurrent as recurrent,
    reduce as reduce,
    rows as rows,
    special as special,
)
from relaxpy.plugins.torch.ops.control import HIGHER_ORDER as HIGHER_ORDER
