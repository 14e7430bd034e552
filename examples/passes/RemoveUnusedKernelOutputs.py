"""What RemoveUnusedKernelOutputs does: the module before it, and after it."""

from relaxpy.relax.transform import RemoveUnusedKernelOutputs
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def both(
        a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")
    ):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = a[vi] * T.float32(3)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Before
        with R.dataflow():
            pair = R.call_tir(
                cls.both, (x,), [R.Tensor((4,), "float32"), R.Tensor((4,), "float32")]
            )
            y = pair[0]
            R.output(y)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def both(
        a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")
    ):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = a[vi] * T.float32(3)

    @T.prim_func(private=True)
    def both1(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            pair = R.call_tir(cls.both1, (x,), R.Tensor((4,), "float32"))
            y = pair
            R.output(y)
        return y


step = RemoveUnusedKernelOutputs()
