"""The loop level, under the name of TVM after v0.22: it is `relaxpy.tir`."""

import sys

from relaxpy import tir
from relaxpy.tir import *

sys.modules[__name__] = tir
