"""Functions of scalars, under TVM's module name: all names of `tir`."""

from relaxpy.script.language.hardware import INTRINSICS as _INTRINSICS
from relaxpy.tir import *

globals().update(_INTRINSICS)
