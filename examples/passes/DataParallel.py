"""What DataParallel does: the module before it, and after it."""

from relaxpy import relax
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def backbone_loss_adjoint(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
        with R.dataflow():
            product = R.multiply(x, w)
            loss = R.sum(product)
            R.output(loss)
        return (loss, (x,))


@I.ir_module
class After:
    @R.function(private=True)
    def backbone_loss_adjoint_of_one(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
        with R.dataflow():
            product = R.multiply(x, w)
            loss = R.sum(product)
            R.output(loss)
        return (loss, (x,))

    @R.function
    def backbone_loss_adjoint(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
        cls = After
        with R.dataflow():
            one = cls.backbone_loss_adjoint_of_one(x, w)
            loss = one[0]
            mean_loss = R.ccl.allreduce(loss, "avg", in_group=False)
            gradients = one[1]
            gradient = gradients[0]
            mean_gradient = R.ccl.allreduce(gradient, "avg", in_group=False)
            gv = (mean_loss, (mean_gradient,))
            R.output(gv)
        return gv


step = relax.training.DataParallel()
