"""What SplitLayoutRewritePreproc does: the module before it, and after it."""

from relaxpy.relax.transform import SplitLayoutRewritePreproc
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def kernel(
        x: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")
    ):
        T.func_attr({"layout_free_buffers": [1]})
        rows = T.alloc_buffer((2, 2), "float32")
        for i in range(4):
            with T.block("rows"):
                vi = T.axis.spatial(4, i)
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                rows[vi // 2, vi % 2] = w[vi]
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] + rows[vi // 2, vi % 2]

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.call_tir(Before.kernel, (x, w), R.Tensor((4,), "float32"))
            R.output(y)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def kernel_prepacked(
        x: T.Buffer((4,), "float32"),
        rows: T.Buffer((2, 2), "float32"),
        y: T.Buffer((4,), "float32"),
    ):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] + rows[vi // 2, vi % 2]

    @T.prim_func(private=True)
    def kernel_weight_prepack(w: T.Buffer((4,), "float32"), rows: T.Buffer((2, 2), "float32")):
        for i in range(4):
            with T.block("rows"):
                vi = T.axis.spatial(4, i)
                rows[vi // 2, vi % 2] = w[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            rows = R.call_tir(cls.kernel_weight_prepack, (w,), R.Tensor((2, 2), "float32"))
            z = R.call_tir(cls.kernel_prepacked, (x, rows), R.Tensor((4,), "float32"))
            y = z
            R.output(y)
        return y


step = SplitLayoutRewritePreproc()
