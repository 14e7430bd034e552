"""What LazyGetInput does: the module before it, and after it."""

from relaxpy.relax.transform import LazyGetInput
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def transform_params(v: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        y = R.exp(w)
        z = R.multiply(v, y)
        return (z, y)


@I.ir_module
class After:
    @R.function
    def transform_params(fget_param: R.Callable([R.Prim("int64"), R.Object], R.Object)):
        R.func_attr({"num_input": 1})
        w_untyped = fget_param(R.prim_value(1), R.str("w"))
        w = R.match_cast(w_untyped, R.Tensor((4,), "float32"))
        y = R.exp(w)
        v_untyped = fget_param(R.prim_value(0), R.str("v"))
        v = R.match_cast(v_untyped, R.Tensor((4,), "float32"))
        z = R.multiply(v, y)
        return (z, y)


step = LazyGetInput()
