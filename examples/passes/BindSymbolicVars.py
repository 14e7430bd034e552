"""What BindSymbolicVars does: the module before it, and after it."""

from relaxpy.relax.transform import BindSymbolicVars
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        y = R.exp(x)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((16, "m"), "float32")):
        y = R.exp(x)
        return y


step = BindSymbolicVars({"n": 16})
