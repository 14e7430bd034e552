"""Layers of neural networks as tensor expressions."""

from relaxpy.ir.te.topi.nn import *
