"""What ExpandTupleArguments does: the module before it, and after it."""

from relaxpy.relax.transform import ExpandTupleArguments
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def f(p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
        y = p[1]
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        z = Before.f((x, x))
        return z


@I.ir_module
class After:
    @R.function(private=True)
    def f(p_0: R.Tensor((4,), "float32"), p_1: R.Tensor((4,), "float32")):
        return p_1

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        z = After.f(x, x)
        return z


step = ExpandTupleArguments()
