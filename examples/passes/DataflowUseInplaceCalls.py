"""What DataflowUseInplaceCalls does: the module before it, and after it."""

from relaxpy.relax.transform import DataflowUseInplaceCalls
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, x)
            R.output(z)
        return z


n = T.int64(4)


@I.ir_module
class After:
    @T.prim_func(private=True)
    def add_inplace(a: T.Buffer((n,), "float32"), b: T.Buffer((n,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(n):
            with T.block("T_add"):
                vi = T.axis.spatial(n, i)
                T.reads(a[vi], b[vi])
                T.writes(a[vi])
                a[vi] = a[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            y = R.exp(x)
            z = R.call_tir_inplace(
                cls.add_inplace, (y, x), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32")
            )
            R.output(z)
        return z


step = DataflowUseInplaceCalls()
