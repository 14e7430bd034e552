"""What DispatchSortScan does: the module before it, and after it."""

from relaxpy.relax.backend import DispatchSortScan
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        t = R.cumsum(x, axis=0)
        z = R.add(t, y)
        return z


n = T.int64(4)


@I.ir_module
class After:
    @T.prim_func(private=True)
    def cumsum(x: T.Buffer((n,), "float32"), y: T.Buffer((n,), "float32")):
        T.func_attr({"tir.noalias": True})
        with T.block("cumsum_generic"):
            T.reads(x[T.int64(0) : n])
            T.writes(y[T.int64(0) : n])
            for i in range(n):
                y[i] = T.if_then_else(i == 0, x[i], y[i - 1] + x[i])

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = After
        t = R.call_tir(cls.cumsum, (x,), out_sinfo=R.Tensor((4,), "float32"))
        z = R.add(t, y)
        return z


step = DispatchSortScan()
