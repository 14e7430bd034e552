"""What LowerGlobalViewToLocalView does: the module before it, and after it."""

from relaxpy.relax.distributed.transform import LowerGlobalViewToLocalView
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @T.prim_func(private=True)
    def row_sum(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, k in T.grid(4, 8):
            with T.block("row_sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @R.function
    def main(x: R.DTensor((4, 8), "float32", "mesh[0]", "S[1]")):
        cls = Before
        y = R.dist.call_tir(cls.row_sum, (x,), out_sinfo=R.DTensor((4,), "float32", "mesh[0]", "R"))
        return y


@I.ir_module
class After:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @T.prim_func(private=True)
    def row_sum(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, k in T.grid(4, 8):
            with T.block("row_sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @T.prim_func(private=True)
    def row_sum1(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, k in T.grid(4, 4):
            with T.block("row_sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @R.function
    def main(x: R.DTensor((4, 8), "float32", "mesh[0]", "S[1]")):
        cls = After
        gv = R.dist.call_tir_local_view(
            cls.row_sum1, (x,), out_sinfo=R.DTensor((4,), "float32", "mesh[0]", "R")
        )
        y = R.ccl.allreduce(gv, op_type="sum", in_group=False, among=[2, 1])
        return y


step = LowerGlobalViewToLocalView()
