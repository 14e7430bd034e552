"""What ConvertLayout does: the module before it, and after it."""

from relaxpy.relax.transform import ConvertLayout
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3, 4, 4), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 3, 4, 4), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            x1 = R.permute_dims(x, (0, 2, 3, 1))
            w1 = R.permute_dims(w, (0, 2, 3, 1))
            y = R.nn.conv2d(x1, w1, data_layout="NHWC", kernel_layout="OHWI")
            z1 = R.nn.relu(y)
            z = R.permute_dims(z1, (0, 3, 1, 2))
            R.output(z)
        return z


step = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})
