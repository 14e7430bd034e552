"""Bounds, under TVM's module name: all names of `arith`."""

from relaxpy.arith import *
