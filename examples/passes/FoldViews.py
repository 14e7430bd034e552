"""What FoldViews does: the module before it, and after it."""

from relaxpy.relax.transform import FoldViews
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def turn(a: T.Buffer((2, 3), "float32"), b: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(3, 2):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vj, vi]

    @T.prim_func(private=True)
    def double(b: T.Buffer((3, 2), "float32"), c: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(3, 2):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = b[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Before
        with R.dataflow():
            y = R.call_tir(cls.turn, (x,), R.Tensor((3, 2), "float32"))
            z = R.call_tir(cls.double, (y,), R.Tensor((3, 2), "float32"))
            R.output(z)
        return z


@I.ir_module
class After:
    @T.prim_func(private=True)
    def turn(a: T.Buffer((2, 3), "float32"), b: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(3, 2):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vj, vi]

    @T.prim_func(private=True)
    def double(b: T.Buffer((3, 2), "float32"), c: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(3, 2):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = b[vi, vj] * T.float32(2)

    @T.prim_func(private=True)
    def turn_double(b: T.Buffer((2, 3), "float32"), c: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(3, 2):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = b[vj, vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = After
        with R.dataflow():
            z = R.call_tir(cls.turn_double, (x,), R.Tensor((3, 2), "float32"))
            R.output(z)
        return z


step = FoldViews()
