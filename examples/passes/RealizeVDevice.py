"""What RealizeVDevice does: the module before it, and after it."""

from relaxpy.relax.transform import RealizeVDevice
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda")]})

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32", "llvm")):
        a = R.add(x, y)
        b = R.hint_on_device(a, R.cuda(0))
        c = R.exp(b)
        return c


@I.ir_module
class After:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda")]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "llvm"), y: R.Tensor((4,), "float32", "llvm")):
        a = R.add(x, y)
        b = R.to_vdevice(a, "cuda")
        c = R.exp(b)
        return c


step = RealizeVDevice()
