"""What FuseTransposeMatmul does: the module before it, and after it."""

from relaxpy.relax.transform import FuseTransposeMatmul
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            transposed = R.permute_dims(w, axes=[1, 0])
            y = R.matmul(x, transposed)
            R.output(y)
        return y


l, m, n = (T.int64(size) for size in (2, 3, 4))


@I.ir_module
class After:
    @T.prim_func(private=True)
    def NT_matmul(
        x: T.Buffer((l, n), "float32"),
        w: T.Buffer((m, n), "float32"),
        y: T.Buffer((l, m), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(l, m, n):
            with T.block("NT_matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vj, vk])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj, vk]

    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((3, 4), "float32")):
        cls = After
        with R.dataflow():
            y = R.call_tir(cls.NT_matmul, (x, w), R.Tensor((2, 3), "float32"))
            R.output(y)
        return y


step = FuseTransposeMatmul()
