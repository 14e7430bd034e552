"""What ComputePrimValue does: the module before it, and after it."""

from relaxpy.relax.transform import ComputePrimValue
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",))):
        n = T.int64()
        y = R.prim_value(n % 16 == 0)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def compute_symbolic_expr(n: T.int64) -> T.bool:
        T.func_attr({"tir.is_host_func": True})
        T.ret(n % 16 == 0)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",))):
        n = T.int64()
        y = After.compute_symbolic_expr(R.prim_value(n))
        return y


step = ComputePrimValue()
