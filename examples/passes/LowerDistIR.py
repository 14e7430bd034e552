"""What LowerDistIR does: the module before it, and after it."""

from relaxpy.relax.distributed.transform import LowerDistIR
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "R"),
        w: R.DTensor((4, 6), "float32", "mesh[0]", "S[1]"),
    ):
        y = R.matmul(x, w)
        return y


@I.ir_module
class After:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(x: R.Tensor((8, 4), "float32"), w: R.Tensor((4, 6), "float32")):
        x1 = R.ccl.broadcast_from_worker0(x)
        w1 = R.ccl.scatter_from_worker0(w, num_workers=2, axis=1)
        y = R.matmul(x1, w1)
        return y


step = LowerDistIR()
