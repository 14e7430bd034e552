"""Converters, one module for each family of operators; importing this fills the table."""

from collections.abc import Callable
from typing import Any

from relaxpy.frontend.torch.ops import (
    attention as attention,
    creation as creation,
    elementwise as elementwise,
    indexing as indexing,
    linear as linear,
    movement as movement,
    normalize as normalize,
    pool as pool,
    reduce as reduce,
)
from relaxpy.frontend.torch.ops.elementwise import cast as cast

#: Converters of operators that take graphs, by name.
HIGHER_ORDER: dict[str, Callable[..., Any]] = {}
