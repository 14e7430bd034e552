"""What AppendLoss does: the module before it, and after it."""

from relaxpy import relax
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        with R.dataflow():
            out = R.matmul(x, w)
            R.output(out)
        return out


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        with R.dataflow():
            out = R.matmul(x, w)
            R.output(out)
        return out

    @R.function
    def main_loss(
        x: R.Tensor((2, 4), "float32"),
        w: R.Tensor((4, 4), "float32"),
        targets: R.Tensor((2, 4), "float32"),
    ):
        with R.dataflow():
            out = R.matmul(x, w)
            lv = R.subtract(out, targets)
            lv1 = R.multiply(lv, lv)
            loss = R.mean(lv1)
            R.output(loss)
        return loss


out = Before["main"].ret_struct_info
step = relax.training.AppendLoss("main", relax.training.loss.MSELoss()(out, out))
