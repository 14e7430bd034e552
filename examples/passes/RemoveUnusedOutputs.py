"""What RemoveUnusedOutputs does: the module before it, and after it."""

from relaxpy.relax.transform import RemoveUnusedOutputs
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.log(x)
            R.output(y, z)
        return (y, z)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        pair = Before.f(x)
        y = pair[0]
        return y


@I.ir_module
class After:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = After.f(x)
        return y


step = RemoveUnusedOutputs()
