"""Assertions and marks of tests, under TVM's module name: all names of `testing`."""

from relaxpy.testing import *
