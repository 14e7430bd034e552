"""Elementwise functions as tensor expressions: all names of `topi`."""

from relaxpy.topi import *
