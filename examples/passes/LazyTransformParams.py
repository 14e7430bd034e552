"""What LazyTransformParams does: the module before it, and after it."""

from relaxpy.relax.transform import LazyTransformParams
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def transform_params(params: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
        w = params[1]
        y = R.exp(w)
        result = (y,)
        return result


@I.ir_module
class After:
    @R.function(pure=False)
    def transform_params():
        item = R.call_packed("get_item", R.prim_value(1), sinfo_args=R.Object)
        checked = R.match_cast(item, R.Tensor((4,), "float32"))
        w = checked
        y = R.exp(w)
        _: R.Tuple() = R.vm.kill_object(w)
        _1 = R.call_packed("set_item", R.prim_value(0), y, sinfo_args=R.Object)
        result: R.Tuple() = R.tuple()
        return result


step = LazyTransformParams()
