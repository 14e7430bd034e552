"""Scalar expressions, under TVM's module name: all names of `tir`, and those of `==` and `!=`."""

from relaxpy import tir
from relaxpy.tir import *

EqualOp = tir.EQ
NotEqualOp = tir.NE
