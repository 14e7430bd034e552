"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.plugins.torch.ops import (
    attention as attention,
    bessel as bessel,
    complex_functions as complex_functions,
    complex_numbers as complex_numbers,
    control as control,
    counting as counting,
    creation as creation,
    elementwise as elementwise,
    fourier as fourier,
    indexing as indexing,
    linear as linear,
    movement as movement,
    normalize as normalize,
    pool as pool,
    prims as prims,
    random as random,
    recurrent as recurrent,
    reduce as reduce,
    regions as regions,
    resize as resize,
    rows as rows,
    special as special,
)
from relaxpy.plugins.torch.ops.control import HIGHER_ORDER as HIGHER_ORDER
from relaxpy.plugins.torch.ops.elementwise import cast as cast
