"""What FoldConstant does: the module before it, and after it."""

from relaxpy.relax.transform import FoldConstant
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.const([1.0, 2.0], "float32")
            b = R.add(a, a)
            c = R.multiply(x, b)
            R.output(c)
        return c


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            c = R.multiply(x, R.const([2.0, 4.0], "float32"))
            R.output(c)
        return c


step = FoldConstant()
