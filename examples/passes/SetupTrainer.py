"""What SetupTrainer does: the module before it, and after it."""

from relaxpy import relax
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor(
        (2,), "float32"
    ):
        with R.dataflow():
            y = R.add(x, w)
            R.output(y)
        return y


@I.ir_module
class After:
    I.module_attrs(
        {
            "param_num": 1,
            "state_num": 0,
            "input_num": 1,
            "optim_state": R.tuple(R.const(0, "int64")),
        }
    )

    @R.function
    def backbone(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor(
        (2,), "float32"
    ):
        with R.dataflow():
            y = R.add(x, w)
            R.output(y)
        return y

    @R.function
    def backbone_loss(
        x: R.Tensor((2,), "float32"),
        w: R.Tensor((2,), "float32"),
        targets: R.Tensor((2,), "float32"),
    ):
        with R.dataflow():
            y = R.add(x, w)
            lv = R.subtract(y, targets)
            lv1 = R.abs(lv)
            gv = R.sum(lv1)
            R.output(gv)
        return gv

    @R.function
    def backbone_loss_adjoint(
        x: R.Tensor((2,), "float32"),
        w: R.Tensor((2,), "float32"),
        targets: R.Tensor((2,), "float32"),
    ):
        with R.dataflow():
            y = R.add(x, w)
            lv = R.subtract(y, targets)
            lv1 = R.abs(lv)
            gv = R.sum(lv1)
            gv_adjoint = R.ones((), "float32")
            lv1_adjoint = R.broadcast_to(gv_adjoint, (2,))
            lv2 = R.sign(lv)
            lv_adjoint = R.multiply(lv1_adjoint, lv2)
            y_adjoint = lv_adjoint
            w_adjoint = y_adjoint
            w_adjoint_out = w_adjoint
            R.output(gv, w_adjoint_out)
        return (gv, (w_adjoint_out,))

    @R.function
    def optimizer(
        params: R.Tuple(R.Tensor((2,), "float32")),
        gradients: R.Tuple(R.Tensor((2,), "float32")),
        optim_states: R.Tuple(R.Tensor((), "int64")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            w = params[0]
            w_grad = gradients[0]
            lv = R.multiply(R.const(0.5, "float32"), w_grad)
            w_new = R.subtract(w, lv)
            params_new = (w_new,)
            optim_states_new = (num_steps_new,)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)


out = Before["backbone"].ret_struct_info
loss, sgd = relax.training.loss.L1Loss("sum"), relax.training.optimizer.SGD(0.5)
step = relax.training.SetupTrainer(loss, sgd, [out, out], legalize=False)
