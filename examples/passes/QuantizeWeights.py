"""What QuantizeWeights does: the module before it, and after it."""

from relaxpy.relax.transform import QuantizeWeights
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 8), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


@I.ir_module
class After:
    @T.prim_func(private=True)
    def convert(
        w: T.Buffer((T.int64(8), T.int64(64)), "float16"),
        compute: T.Buffer((T.int64(8), T.int64(64)), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "relaxpy.is_decoder": True})
        for i0, i1 in T.grid(T.int64(8), T.int64(64)):
            with T.block("compute"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                compute[v_i0, v_i1] = T.Cast("float32", w[v_i0, v_i1])

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((8, 64), "float16")):
        R.func_attr({"num_input": 1})
        cls = After
        with R.dataflow():
            weights = R.call_tir(cls.convert, (w,), out_sinfo=R.Tensor((8, 64), "float32"))
            turned = R.permute_dims(weights)
            y = R.matmul(x, turned)
            R.output(y)
        return y


step = QuantizeWeights("q0f16", params=["w"])
