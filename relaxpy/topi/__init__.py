"""Common tensor functions as tensor expressions."""

from relaxpy.ir.te.topi import *
from relaxpy.ir.te.topi import __all__ as __all__
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.topi import (
    broadcast as broadcast,
    image as image,
    math as math,
    nn as nn,
    reduction as reduction,
    testing as testing,
    transform as transform,
    utils as utils,
)

_hint_at_absent(globals())
