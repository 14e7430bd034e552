"""Helpers of tensor expressions."""

from relaxpy.ir.te.topi.utils import *
