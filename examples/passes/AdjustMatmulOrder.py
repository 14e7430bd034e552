"""What AdjustMatmulOrder does: the module before it, and after it."""

from relaxpy.relax.transform import AdjustMatmulOrder
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((16,), "float32"),
        a: R.Tensor((16, "rank"), "float32"),
        b: R.Tensor(("rank", 32), "float32"),
    ):
        weight = R.matmul(a, b)
        y = R.matmul(x, weight)
        return y


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((16,), "float32"),
        a: R.Tensor((16, "rank"), "float32"),
        b: R.Tensor(("rank", 32), "float32"),
    ):
        p = R.matmul(x, a)
        y = R.matmul(p, b)
        return y


step = AdjustMatmulOrder()
