"""What SpecializePrimFuncBasedOnCallSite does: the module before it, and after it."""

from relaxpy.relax.transform import SpecializePrimFuncBasedOnCallSite
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    I.module_global_infos({"vdevice": [I.vdevice("opencl", 0, "global.texture")]})

    @T.prim_func(private=True)
    def relu(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.max(x[i], T.float32(0))

    @R.function
    def main(x: R.Tensor((4,), "float32", "opencl:0")):
        cls = Before
        return R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((4,), "float32"))


@I.ir_module
class After:
    I.module_global_infos({"vdevice": [I.vdevice("opencl", 0, "global.texture")]})

    @T.prim_func(private=True)
    def relu(x: T.handle, y: T.Buffer((4,), "float32")):
        T.func_attr({"scoped": 1})
        X = T.match_buffer(x, (4,), scope="global.texture")
        for i in range(4):
            y[i] = T.max(X[i], T.float32(0))

    @R.function
    def main(x: R.Tensor((4,), "float32", "opencl:0")):
        cls = After
        return R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((4,), "float32"))


step = SpecializePrimFuncBasedOnCallSite()
