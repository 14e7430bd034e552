"""What InlinePrivateFunctions does: the module before it, and after it."""

from relaxpy.relax.transform import InlinePrivateFunctions
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def square(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.multiply(x, x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = Before.square(x)
        z = R.exp(y)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.multiply(x, x)
        z = R.exp(y)
        return z


step = InlinePrivateFunctions()
