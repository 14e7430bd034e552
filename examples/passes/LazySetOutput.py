"""What LazySetOutput does: the module before it, and after it."""

from relaxpy.relax.transform import LazySetOutput
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def transform_params(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        z = R.multiply(x, y)
        return (z, y)


@I.ir_module
class After:
    @R.function(pure=False)
    def transform_params(
        x: R.Tensor((4,), "float32"),
        fset_output: R.Callable([R.Prim("int64"), R.Object], R.Tuple(), purity=False),
    ):
        y = R.exp(x)
        _: R.Tuple() = fset_output(R.prim_value(1), y)
        z = R.multiply(x, y)
        _1: R.Tuple() = fset_output(R.prim_value(0), z)
        return R.tuple()


step = LazySetOutput()
