"""What FuseOps does: the module before it, and after it."""

from relaxpy.relax.transform import FuseOps
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        T.func_attr({"op_pattern": 0})
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Before
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))
            z = R.call_tir(cls.double, (y,), R.Tensor((4,), "float32"))
            R.output(z)
        return z


@I.ir_module
class After:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        T.func_attr({"op_pattern": 0})
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = After
        with R.dataflow():
            z = cls.fused_double_double(x)
            R.output(z)
        return z

    @R.function(private=True)
    def fused_double_double(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Primitive": True})
        cls = After
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))
            z = R.call_tir(cls.double, (y,), R.Tensor((4,), "float32"))
            R.output(z)
        return z


step = FuseOps()
