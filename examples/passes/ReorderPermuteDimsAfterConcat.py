"""What ReorderPermuteDimsAfterConcat does: the module before it, and after it."""

from relaxpy.relax.transform import ReorderPermuteDimsAfterConcat
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            s = R.permute_dims(x)
            t = R.permute_dims(y)
            z = R.concat((s, t), axis=1)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            joined = R.concat((x, y), axis=0)
            z = R.permute_dims(joined)
            R.output(z)
        return z


step = ReorderPermuteDimsAfterConcat()
