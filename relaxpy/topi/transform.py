"""Functions that move elements as tensor expressions: all names of `topi`."""

from relaxpy.topi import *
