"""What VMShapeLower does: the module before it, and after it."""

from relaxpy.relax.transform import VMShapeLower
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")) -> R.Shape(ndim=1):
        R.func_attr({"relax.force_pure": True})
        n = T.int64()
        return R.shape([n])


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")) -> R.Shape(ndim=1):
        R.func_attr({"relax.force_pure": True})
        heap = R.call_builtin_with_ctx(
            "vm.builtin.alloc_shape_heap",
            (R.prim_value(1),),
            sinfo_args=R.Tensor(ndim=1, dtype="int64"),
        )
        _ = R.call_packed(
            "vm.builtin.check_tensor_info",
            x,
            R.prim_value(2),
            R.dtype("float32"),
            R.str(""),
            sinfo_args=R.Tuple(),
        )
        _1 = R.call_packed(
            "vm.builtin.match_shape",
            x,
            heap,
            R.prim_value(2),
            R.prim_value(1),
            R.prim_value(0),
            R.prim_value(0),
            R.prim_value(2),
            R.str(""),
            sinfo_args=R.Tuple(),
        )
        s = R.call_packed(
            "vm.builtin.make_shape",
            heap,
            R.prim_value(1),
            R.prim_value(1),
            R.prim_value(0),
            sinfo_args=R.Shape(ndim=1),
        )
        return s


step = VMShapeLower(emit_err_ctx=False)
