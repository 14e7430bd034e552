"""What LowerAllocTensor does: the module before it, and after it."""

from relaxpy.relax.transform import LowerAllocTensor
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32")):
        n = T.int64()
        y = R.builtin.alloc_tensor(R.shape([2, n]), "float32", 0)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32")):
        n = T.int64()
        storage = R.memory.alloc_storage(R.shape([8 * n]), 0, "global", "uint8")
        y = R.memory.alloc_tensor(storage, 0, R.shape([2, n]), "float32")
        return y


step = LowerAllocTensor()
