"""Operations, under TVM's module name: all names of `te`."""

from relaxpy.te import *
