"""What RemoveRedundantReshape does: the module before it, and after it."""

from relaxpy.relax.transform import RemoveRedundantReshape
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            a = R.reshape(x, (3, 4))
            b = R.reshape(a, (12,))
            c = R.reshape(b, (12,))
            R.output(c)
        return c


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            c = R.reshape(x, (12,))
            R.output(c)
        return c


step = RemoveRedundantReshape()
