"""What FastMathTransform does: the module before it, and after it."""

from relaxpy.relax.transform import FastMathTransform
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return y


n = T.int64(4)


@I.ir_module
class After:
    @T.prim_func(private=True)
    def fast_exp(x: T.Buffer((n,), "float32"), y: T.Buffer((n,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(n):
            with T.block("T_fast_exp"):
                vi = T.axis.spatial(n, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = T.exp(x[vi])

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        y = R.call_tir(cls.fast_exp, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y


step = FastMathTransform()
