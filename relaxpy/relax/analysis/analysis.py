"""Analyses, under TVM's module name: all names of `relax.analysis`."""

from relaxpy.relax.analysis import *
