"""What ToMixedPrecision does: the module before it, and after it."""

from relaxpy.relax.transform import ToMixedPrecision
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            y = R.matmul(x, w, out_dtype="float32")
            z = R.nn.relu(y)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            x1 = R.astype(x, "float16")
            w1 = R.astype(w, "float16")
            y = R.matmul(x1, w1, out_dtype="float32")
            y1 = R.astype(y, "float16")
            z1 = R.nn.relu(y1)
            z = R.astype(z1, "float32")
            R.output(z)
        return z


step = ToMixedPrecision()
