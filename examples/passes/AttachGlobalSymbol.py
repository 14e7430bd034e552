"""What AttachGlobalSymbol does: the module before it, and after it."""

from relaxpy.relax.transform import AttachGlobalSymbol
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


@I.ir_module
class After:
    @R.function
    def f(x: R.Tensor((4,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


step = AttachGlobalSymbol()
