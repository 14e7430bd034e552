"""What UpdateVDevice does: the module before it, and after it."""

from relaxpy.relax.transform import UpdateVDevice
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda")]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "cuda")):
        y = R.exp(x)
        return y


@I.ir_module
class After:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("metal")]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "metal")):
        y = R.exp(x)
        return y


step = UpdateVDevice(I.vdevice("metal"), 1)
