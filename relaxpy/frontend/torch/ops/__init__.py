"""Converters, one module for each family of operators; importing this fills the table."""

from relaxpy.frontend.torch.ops import (
    attention as attention,
    control as control,
    creation as creation,
    elementwise as elementwise,
    indexing as indexing,
    linear as linear,
    movement as movement,
    normalize as normalize,
    pool as pool,
    random as random,
    reduce as reduce,
)
from relaxpy.frontend.torch.ops.control import HIGHER_ORDER as HIGHER_ORDER
from relaxpy.frontend.torch.ops.elementwise import cast as cast
