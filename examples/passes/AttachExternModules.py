"""What AttachExternModules does: the module before it, and after it."""

import numpy as np

from relaxpy.relax.transform import AttachExternModules
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_pure_packed("square", x, sinfo_args=R.Tensor((4,), "float32"))
        return y


@I.ir_module
class After:
    I.module_attrs({"external_mods": ["square"]})

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_pure_packed("square", x, sinfo_args=R.Tensor((4,), "float32"))
        return y


step = AttachExternModules([{"square": np.square}])
