"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.torch.ops import (
    attention as attention,
    bessel as bessel,
    control as control,
    counting as counting,
    creation as creation,
    elementwise as elementwise,
    exponential as exponential,
    factors as factors,
    indefinite as indefinite,
    indexing as indexing,
    linear as linear,
    losses as losses,
    movement as movement,
    normalize as normalize,
    orthogonal as orthogonal,
    parts as parts,
    pool as pool,
    prims as prims,
    random as random,
    reduce as reduce,
    resize as resize,
    rows as rows,
    scalars as scalars,
    segments as segments,
    special as special,
)
from relaxpy.frontend.torch.ops.control import HIGHER_ORDER as HIGHER_ORDER
from relaxpy.frontend.torch.ops.elementwise import cast as cast
