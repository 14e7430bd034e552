"""What KillAfterLastUse does: the module before it, and after it."""

from relaxpy.relax.transform import KillAfterLastUse
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        storage = R.memory.alloc_storage(R.shape([16]), 0, "global", "uint8")
        y = R.memory.alloc_tensor(storage, 0, R.shape([4]), "float32")
        _ = R.call_packed("copy", x, y, sinfo_args=R.Tuple())
        z = R.add(x, y)
        return z


@I.ir_module
class After:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        storage = R.memory.alloc_storage(R.shape([16]), 0, "global", "uint8")
        y = R.memory.alloc_tensor(storage, 0, R.shape([4]), "float32")
        _ = R.memory.kill_storage(storage)
        _1 = R.call_packed("copy", x, y, sinfo_args=R.Tuple())
        z = R.add(x, y)
        _2 = R.memory.kill_tensor(y)
        return z


step = KillAfterLastUse()
