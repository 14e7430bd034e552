"""What ToNonDataflow does: the module before it, and after it."""

from relaxpy.relax.transform import ToNonDataflow
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, y)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        z = R.add(y, y)
        return z


step = ToNonDataflow()
