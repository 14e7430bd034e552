"""Converters, one module for each family of operators; importing this loads the frequent ones.

`find` loads those that few models need, which `RARE` lists.
"""

from relaxpy.plugins.onnx.ops import (
    branches as branches,
    classical as classical,
    conv as conv,
    creation as creation,
    elementwise as elementwise,
    movement as movement,
    normalize as normalize,
    reduce as reduce,
    sequences as sequences,
)
