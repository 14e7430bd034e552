"""What UpdateParamStructInfo does: the module before it, and after it."""

from relaxpy import relax
from relaxpy.relax.transform import UpdateParamStructInfo
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((8,), "float16")) -> R.Tensor((8,), "float16"):
        y = R.exp(x)
        return y


step = UpdateParamStructInfo(lambda param: relax.TensorStructInfo((8,), "float16"))
