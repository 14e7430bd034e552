"""What DeadCodeElimination does: the module before it, and after it."""

from relaxpy.relax.transform import DeadCodeElimination
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def unused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.log(y)
            R.output(y, z)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y


step = DeadCodeElimination()
