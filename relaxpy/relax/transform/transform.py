"""Passes, under TVM's module name: all names of `relax.transform`."""

from relaxpy.relax.transform import *
