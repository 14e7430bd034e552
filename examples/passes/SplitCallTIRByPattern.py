"""What SplitCallTIRByPattern does: the module before it, and after it."""

from relaxpy.relax.transform import SplitCallTIRByPattern
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Patterns:
    @T.prim_func
    def doubled(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.float32(2)


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def kernel(
        a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")
    ):
        t = T.alloc_buffer((4,), "float32")
        for i in range(4):
            with T.block("t"):
                vi = T.axis.spatial(4, i)
                t[vi] = a[vi] * T.float32(2)
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = t[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        z = R.call_tir(Before.kernel, (x, y), R.Tensor((4,), "float32"))
        return z


@I.ir_module
class After:
    @T.prim_func(private=True)
    def unfused_epilogue(
        t: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")
    ):
        for i in range(4):
            with T.block("c"):
                vi = T.axis.spatial(4, i)
                c[vi] = t[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = After
        t = R.call_pure_packed("kernel", x, sinfo_args=(R.Tensor((4,), "float32"),))
        z = R.call_tir(cls.unfused_epilogue, (t, y), R.Tensor((4,), "float32"))
        return z


def twice(x):
    return x + x


def codegen(matches):
    return [twice, 1, [matches[0].matched_buffers[0]]]


step = SplitCallTIRByPattern([Patterns["doubled"]], codegen)
