"""What RemoveUnusedParameters does: the module before it, and after it."""

from relaxpy.relax.transform import RemoveUnusedParameters
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32"), y: R.Tensor) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor):
        z = Before.f(x, y)
        return z


@I.ir_module
class After:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor):
        z = After.f(x)
        return z


step = RemoveUnusedParameters()
