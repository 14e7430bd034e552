"""What AttachAttrLayoutFreeBuffers does: the module before it, and after it."""

from relaxpy.relax.transform import AttachAttrLayoutFreeBuffers
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def scale(
        x: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")
    ):
        for i in range(4):
            y[i] = x[i] * w[i]

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.call_tir(Before.scale, (x, w), R.Tensor((4,), "float32"))
            R.output(y)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def scale1(
        x: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")
    ):
        T.func_attr({"layout_free_buffers": [1]})
        for i in range(4):
            y[i] = x[i] * w[i]

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.call_tir(After.scale1, (x, w), R.Tensor((4,), "float32"))
            R.output(y)
        return y


step = AttachAttrLayoutFreeBuffers()
