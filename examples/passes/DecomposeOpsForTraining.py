"""What DecomposeOpsForTraining does: the module before it, and after it."""

from relaxpy.relax.transform import DecomposeOpsForTraining
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
    ):
        norm = R.nn.layer_norm(x, gamma, beta, axes=[-1], epsilon=1e-5)
        return norm


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
    ):
        mean = R.mean(x, axis=[-1], keepdims=True)
        centered = R.subtract(x, mean)
        var = R.variance(x, axis=[-1], keepdims=True)
        positive = R.add(var, R.const(1e-5, "float32"))
        deviation = R.sqrt(positive)
        scaled = R.divide(centered, deviation)
        product = R.multiply(scaled, gamma)
        norm = R.add(product, beta)
        return norm


step = DecomposeOpsForTraining()
