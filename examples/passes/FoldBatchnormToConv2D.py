"""What FoldBatchnormToConv2D does: the module before it, and after it."""

from relaxpy.relax.transform import FoldBatchnormToConv2D
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor(("n", 3, 3, 3), "float32"),
        w: R.Tensor((4, 3, 3, 3), "float32"),
        gamma: R.Tensor((4,), "float32"),
        beta: R.Tensor((4,), "float32"),
        mean: R.Tensor((4,), "float32"),
        var: R.Tensor((4,), "float32"),
    ):
        with R.dataflow():
            conv = R.nn.conv2d(x, w)
            norm = R.nn.batch_norm(
                conv, gamma, beta, mean, var, axis=1, epsilon=1e-3, training=False
            )
            y = norm[0]
            R.output(y)
        return y


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor(("n", 3, 3, 3), "float32"),
        w: R.Tensor((4, 3, 3, 3), "float32"),
        gamma: R.Tensor((4,), "float32"),
        beta: R.Tensor((4,), "float32"),
        mean: R.Tensor((4,), "float32"),
        var: R.Tensor((4,), "float32"),
    ):
        with R.dataflow():
            scale = gamma / R.sqrt(var + R.const(1e-3, "float32"))
            factors = R.expand_dims(scale, (1, 2, 3))
            scaled = R.multiply(w, factors)
            conv = R.nn.conv2d(x, scaled)
            bias = R.subtract(beta, R.multiply(mean, scale))
            y = R.add(conv, R.expand_dims(bias, (0, 2, 3)))
            R.output(y)
        return y


step = FoldBatchnormToConv2D()
