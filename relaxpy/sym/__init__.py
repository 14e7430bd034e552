"""Integer reasoning, under the name of TVM after v0.26: it is `relaxpy.arith`."""

import sys

from relaxpy import arith
from relaxpy.arith import *

sys.modules[__name__] = arith
