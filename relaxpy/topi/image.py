"""Functions of images as tensor expressions."""

from relaxpy.ir.te.topi.image import *
