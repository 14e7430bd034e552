"""What DispatchSampling does: the module before it, and after it."""

from relaxpy.relax.backend import DispatchSampling
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(
        prob: R.Tensor((3, 5), "float32"),
        sample: R.Tensor((6, 1), "float32"),
        rows: R.Tensor((6, 1), "int64"),
    ):
        y = R.multinomial_from_uniform(prob, sample, rows, dtype="int64")
        return y


n, b, one, c = (T.int64(size) for size in (6, 3, 1, 5))


@I.ir_module
class After:
    @T.prim_func(private=True)
    def get_sample_index(
        sums: T.Buffer((b, c), "float64"),
        sample: T.Buffer((n, one), "float32"),
        rows: T.Buffer((n, one), "int64"),
        y: T.Buffer((n, one), "int64"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(n, one, c):
            with T.block("get_sample_index"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(sample[vi, vj], sums[rows[vi, vj], vk], rows[vi, vj])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.max_value("int64")
                y[vi, vj] = T.min(
                    y[vi, vj],
                    T.if_then_else(
                        T.Cast("float64", sample[vi, vj]) < sums[rows[vi, vj], vk], vk, c - 1
                    ),
                )

    @R.function
    def main(
        prob: R.Tensor((3, 5), "float32"),
        sample: R.Tensor((6, 1), "float32"),
        rows: R.Tensor((6, 1), "int64"),
    ):
        cls = After
        sums = R.cumsum(prob, axis=1, dtype="float64", exclusive=False)
        y = R.call_tir(cls.get_sample_index, (sums, sample, rows), R.Tensor((6, 1), "int64"))
        return y


step = DispatchSampling()
