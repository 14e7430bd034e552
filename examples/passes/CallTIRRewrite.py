"""What CallTIRRewrite does: the module before it, and after it."""

from relaxpy.relax.transform import CallTIRRewrite
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("double"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        R.func_attr({"relax.force_pure": True})
        y = R.call_tir(Before.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y


@I.ir_module
class After:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("double"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        R.func_attr({"relax.force_pure": True})
        alloc = R.builtin.alloc_tensor(R.shape([4]), "float32", 0, "global")
        _ = After.double(x, alloc)
        y = alloc
        return y


step = CallTIRRewrite()
