"""What ShareSums does: the module before it, and after it."""

from relaxpy.relax.transform import ShareSums
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            mean = R.mean(x, axis=[1])
            variance = R.variance(x, axis=[1])
            R.output(mean, variance)
        return (mean, variance)


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            total = R.sum(x, axis=[1])
            mean = R.divide(total, R.const(4.0, "float32"))
            wide = R.expand_dims(mean, axis=[1])
            distance = R.subtract(x, wide)
            square = R.multiply(distance, distance)
            squares = R.sum(square, axis=[1])
            variance = R.divide(squares, R.const(4.0, "float32"))
            R.output(mean, variance)
        return (mean, variance)


step = ShareSums()
