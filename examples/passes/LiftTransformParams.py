"""What LiftTransformParams does: the module before it, and after it."""

from relaxpy.relax.transform import LiftTransformParams
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            transposed = R.permute_dims(w)
            y = R.matmul(x, transposed)
            R.output(y)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), transposed: R.Tensor((3, 4), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, transposed)
            R.output(y)
        return y

    @R.function
    def main_transform_params(model_params: R.Tuple(R.Tensor((4, 3), "float32"))):
        R.func_attr({"num_input": 0})
        with R.dataflow():
            w = model_params[0]
            transposed = R.permute_dims(w)
            result = (transposed,)
            R.output(result)
        return result


step = LiftTransformParams()
