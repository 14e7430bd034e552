"""What LegalizeRedistribute does: the module before it, and after it."""

from relaxpy.relax.distributed.transform import LegalizeRedistribute
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "R"),
        y: R.DTensor((8, 4), "float32", "mesh[0]", "S[0]"),
    ):
        a = R.dist.redistribute(x, "mesh[0]", "S[0]")
        b = R.dist.redistribute(y, "mesh[0]", "S[0]")
        c = R.add(a, b)
        return c


@I.ir_module
class After:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "R"),
        y: R.DTensor((8, 4), "float32", "mesh[0]", "S[0]"),
    ):
        a = R.dist.redistribute_replica_to_shard(x, num_workers=2, axis=0)
        b = y
        c = R.add(a, b)
        return c


step = LegalizeRedistribute()
