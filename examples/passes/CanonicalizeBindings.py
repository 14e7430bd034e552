"""What CanonicalizeBindings does: the module before it, and after it."""

from relaxpy.relax.transform import CanonicalizeBindings
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            pair = (x, R.exp(x))
            y = pair[1]
            z = y
            R.output(pair, z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            z = R.exp(x)
            pair = (x, z)
            R.output(z)
        return z


step = CanonicalizeBindings()
