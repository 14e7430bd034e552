"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.plugins.torch.ops import (
    assertions as assertions,
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
    losses as losses,
    matrices as matrices,
    movement as movement,
    normalize as normalize,
    parts as parts,
    pool as pool,
    prims as prims,
    random as random,
    recurrent as recurrent,
    reduce as reduce,
    regions as regions,
    resize as resize,
    rows as rows,
    scalars as scalars,
    segments as segments,
    special as special,
)
from relaxpy.plugins.torch.ops.control import HIGHER_ORDER as HIGHER_ORDER
from relaxpy.plugins.torch.ops.elementwise import cast as cast
