"""What StaticPlanBlockMemory does: the module before it, and after it."""

from relaxpy.relax.transform import StaticPlanBlockMemory
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32"), f: R.Tensor((4,), "float32")):
        a = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        b = R.reshape(a, R.shape([2, 4]))
        c = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
        return f


@I.ir_module
class After:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32"), f: R.Tensor((4,), "float32")):
        storage = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        b = R.reshape(a, R.shape([2, 4]))
        c = R.memory.alloc_tensor(storage, 0, R.shape([4]), "float32")
        return f


step = StaticPlanBlockMemory()
