"""What NormalizeGlobalVar does: the module before it, and after it."""

from relaxpy.relax.transform import NormalizeGlobalVar
from relaxpy.script import ir as I, relax as R


@I.ir_module(check_well_formed=False)
class Before:
    @R.function
    def f(x: R.Tensor((4,), "float32")):
        R.func_attr({"global_symbol": "main"})
        return x


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


step = NormalizeGlobalVar()
