"""What Gradient does: the module before it, and after it."""

from relaxpy.relax.transform import Gradient
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((3, 3), "float32")) -> R.Tensor((), "float32"):
        with R.dataflow():
            gv = R.sum(R.exp(x))
            R.output(gv)
        return gv


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((3, 3), "float32")) -> R.Tensor((), "float32"):
        with R.dataflow():
            gv = R.sum(R.exp(x))
            R.output(gv)
        return gv

    @R.function
    def main_adjoint(x: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            y = R.exp(x)
            gv = R.sum(y)
            gv_adjoint = R.ones((), "float32")
            y_adjoint = R.broadcast_to(gv_adjoint, (3, 3))
            x_adjoint = R.multiply(y_adjoint, y)
            x_adjoint_out = x_adjoint
            R.output(gv, x_adjoint_out)
        return (gv, (x_adjoint_out,))


step = Gradient("main")
