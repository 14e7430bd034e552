"""What ExpandMatmulOfSum does: the module before it, and after it."""

from relaxpy.relax.transform import ExpandMatmulOfSum
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        a: R.Tensor((3, 4), "float32"),
        b: R.Tensor((3, 4), "float32"),
    ):
        weight = R.add(a, b)
        y = R.matmul(x, weight)
        return y


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        a: R.Tensor((3, 4), "float32"),
        b: R.Tensor((3, 4), "float32"),
    ):
        p = R.matmul(x, a)
        q = R.matmul(x, b)
        y = R.add(p, q)
        return y


step = ExpandMatmulOfSum()
