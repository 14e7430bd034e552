"""What QuantizeWeights does: the module before it, and after it."""

from relaxpy.relax.transform import QuantizeWeights
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 8), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((8, 64), "float16")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            dequantize = R.astype(w, "float32")
            permute_dims = R.permute_dims(dequantize)
            y = R.matmul(x, permute_dims)
            R.output(y)
        return y


step = QuantizeWeights("q0f16", params=["w"])
