"""What Normalize does: the module before it, and after it."""

from relaxpy import IRModule, relax
from relaxpy.relax.transform import Normalize
from relaxpy.script import ir as I, relax as R

x = relax.Var("x", R.Tensor((4,), "float32"))
product = relax.op.exp(relax.op.multiply(x, x))
func = relax.Function([x], relax.SeqExpr([], product))
Before = IRModule({"main": func.with_attr("global_symbol", "main")})


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.multiply(x, x)
        return R.exp(y)


step = Normalize()
