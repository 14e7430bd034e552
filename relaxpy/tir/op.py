"""Functions of scalars, under TVM's module name: all names of `tir`."""

from relaxpy.tir import *
