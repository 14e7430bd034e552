"""What PropagateSharding does: the module before it, and after it."""

from relaxpy.relax.distributed.transform import PropagateSharding
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.Tensor((8, 4), "float32"),
        w: R.Tensor((4, 6), "float32"),
        v: R.Tensor((6, 4), "float32"),
    ):
        a = R.matmul(x, w)
        b = R.dist.annotate_sharding(a, "mesh[0]", "S[1]")
        c = R.matmul(b, v)
        return c


@I.ir_module
class After:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "R"),
        w: R.DTensor((4, 6), "float32", "mesh[0]", "S[1]"),
        v: R.DTensor((6, 4), "float32", "mesh[0]", "S[0]"),
    ):
        a = R.matmul(x, w)
        c = R.matmul(a, v)
        return c


step = PropagateSharding()
