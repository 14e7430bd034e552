"""What RunCodegen does: the module before it, and after it."""

import numpy as np

import relaxpy
from relaxpy.relax.transform import RunCodegen
from relaxpy.script import ir as I, relax as R


@relaxpy.register_func("relax.ext.example", override=True)
def compiled(functions, options, constant_names):
    return {"double": lambda x: np.add(x, x)}


@I.ir_module
class Before:
    @R.function
    def double(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Codegen": "example"})
        y = R.add(x, x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Before
        y = cls.double(x)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_pure_packed("double", x, sinfo_args=(R.Tensor((4,), "float32"),))
        return y


step = RunCodegen()
