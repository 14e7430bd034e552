"""What LowerRuntimeBuiltin does: the module before it, and after it."""

from relaxpy.relax.transform import LowerRuntimeBuiltin
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), shape: R.Shape(ndim=2)):
        R.func_attr({"relax.force_pure": True})
        storage = R.memory.alloc_storage(R.shape([64]), 0, "global", "float32")
        y = R.memory.alloc_tensor(storage, 0, R.shape([4, 4]), "float32")
        _ = R.memory.kill_storage(storage)
        z = R.reshape(x, shape)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), shape: R.Shape(ndim=2)):
        R.func_attr({"relax.force_pure": True})
        storage = R.vm.alloc_storage(R.shape([64]), R.prim_value(0), "uint8", "global")
        y = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([4, 4]), "float32")
        _ = R.vm.kill_object(storage)
        z = R.call_packed("vm.builtin.reshape", x, shape, sinfo_args=R.Tensor(shape, "float32"))
        return z


step = LowerRuntimeBuiltin()
