"""What AnnotateTIROpPattern does: the module before it, and after it."""

from relaxpy.relax.transform import AnnotateTIROpPattern
from relaxpy.script import ir as I, tir as T


@I.ir_module
class Before:
    @T.prim_func
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)


@I.ir_module
class After:
    @T.prim_func
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        T.func_attr({"op_pattern": 0})
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi] * T.float32(2)


step = AnnotateTIROpPattern()
