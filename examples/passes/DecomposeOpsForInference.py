"""What DecomposeOpsForInference does: the module before it, and after it."""

from relaxpy.relax.transform import DecomposeOpsForInference
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ):
        norm = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=1e-5)
        return norm


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ):
        mean_2d = R.expand_dims(mean, [0])
        centered = R.subtract(x, mean_2d)
        var_2d = R.expand_dims(var, [0])
        positive = R.add(var_2d, R.const(1e-5, "float32"))
        deviation = R.sqrt(positive)
        scaled = R.divide(centered, deviation)
        gamma_2d = R.expand_dims(gamma, [0])
        product = R.multiply(scaled, gamma_2d)
        beta_2d = R.expand_dims(beta, [0])
        total = R.add(product, beta_2d)
        norm = (total, mean, var)
        return norm


step = DecomposeOpsForInference()
