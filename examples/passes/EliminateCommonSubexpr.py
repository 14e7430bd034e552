"""What EliminateCommonSubexpr does: the module before it, and after it."""

from relaxpy.relax.transform import EliminateCommonSubexpr
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)
            c = R.multiply(a, b)
            R.output(c)
        return c


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = a
            c = R.multiply(a, a)
            R.output(c)
        return c


step = EliminateCommonSubexpr()
