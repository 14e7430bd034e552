"""What RewriteDataflowReshape does: the module before it, and after it."""

from relaxpy.relax.transform import RewriteDataflowReshape
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def flat(a: T.Buffer((2, 3), "float32"), b: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.block("b"):
                vi = T.axis.spatial(6, i)
                b[vi] = a[vi // 3, vi % 3]

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.call_tir(Before.flat, (x,), R.Tensor((6,), "float32"))
            z = R.exp(y)
            R.output(z)
        return z


@I.ir_module
class After:
    @T.prim_func(private=True)
    def flat(a: T.Buffer((2, 3), "float32"), b: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.block("b"):
                vi = T.axis.spatial(6, i)
                b[vi] = a[vi // 3, vi % 3]

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.reshape(x, (6,))
            z = R.exp(y)
            R.output(z)
        return z


step = RewriteDataflowReshape()
