"""What BindParams does: the module before it, and after it."""

import numpy as np

from relaxpy.relax.transform import BindParams
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor(("n",), "float32")):
        y = R.multiply(x, w)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.multiply(x, R.const([1, 2], "float32"))
        return y


step = BindParams("main", {"w": np.array([1, 2], "float32")})
