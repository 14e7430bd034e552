"""What RemovePurityChecking does: the module before it, and after it."""

from relaxpy.relax.transform import RemovePurityChecking
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_pure_packed("double", x, sinfo_args=R.Tensor((4,), "float32"))
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        R.func_attr({"relax.force_pure": True})
        y = R.call_packed("double", x, sinfo_args=R.Tensor((4,), "float32"))
        return y


step = RemovePurityChecking()
