"""What UseAssumeToReduceBranches does: the module before it, and after it."""

from relaxpy.script import ir as I, tir as T
from relaxpy.tir.transform import UseAssumeToReduceBranches


@I.ir_module
class Before:
    @T.prim_func
    def double(a: T.Buffer((16,), "int32"), b: T.Buffer((16,), "int32")):
        T.func_attr({"op_pattern": 0, "tir.noalias": True})
        for i in range(16):
            with T.block("assumption"):
                vi = T.axis.spatial(16, i)
                T.assume(vi < 14 or a[vi] == 0)
        for i in range(16):
            with T.block("compute"):
                vi = T.axis.spatial(16, i)
                b[vi] = T.if_then_else(14 <= vi, 0, a[vi] * 2)


@I.ir_module
class After:
    @T.prim_func
    def double(a: T.Buffer((16,), "int32"), b: T.Buffer((16,), "int32")):
        T.func_attr({"op_pattern": 0, "tir.noalias": True})
        for i in range(16):
            with T.block("assumption"):
                vi = T.axis.spatial(16, i)
                T.assume(vi < 14 or a[vi] == 0)
        for i in range(16):
            with T.block("compute"):
                vi = T.axis.spatial(16, i)
                b[vi] = a[vi] * 2


step = UseAssumeToReduceBranches()
