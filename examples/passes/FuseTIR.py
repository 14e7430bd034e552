"""What FuseTIR does: the module before it, and after it."""

from relaxpy.relax.transform import FuseTIR
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)

    @R.function(private=True)
    def fused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Primitive": True})
        cls = Before
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))
            z = R.call_tir(cls.double, (y,), R.Tensor((4,), "float32"))
            R.output(z)
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Before
        y = cls.fused(x)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def fused(x: T.Buffer((T.int64(4),), "float32"), z: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tir.noalias": True})
        y = T.alloc_buffer((T.int64(4),), "float32")
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.float32(2)
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                z[vi] = y[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = After
        y = R.call_tir(cls.fused, (x,), R.Tensor((4,), "float32"))
        return y


step = FuseTIR()
