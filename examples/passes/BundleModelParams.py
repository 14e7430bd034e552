"""What BundleModelParams does: the module before it, and after it."""

from relaxpy.relax.transform import BundleModelParams
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((4,), "float32"), v: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")
    ):
        R.func_attr({"num_input": 1})
        y = R.multiply(x, v)
        z = R.add(y, w)
        return z


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((4,), "float32"),
        weights: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
    ):
        R.func_attr({"num_input": 1})
        v = weights[0]
        y = R.multiply(x, v)
        w = weights[1]
        z = R.add(y, w)
        return z


step = BundleModelParams("weights")
