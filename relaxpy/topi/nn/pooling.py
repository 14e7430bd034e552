"""Pooling of windows."""

from relaxpy.ir.te.topi.adaptive_pooling import *
from relaxpy.ir.te.topi.pooling import *
