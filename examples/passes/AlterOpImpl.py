"""What AlterOpImpl does: the module before it, and after it."""

from relaxpy.relax.transform import AlterOpImpl
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"operator_name": "relax.exp"})
        for i in range(16):
            b[i] = T.exp(a[i])

    @R.function
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        with R.dataflow():
            y = R.call_tir(Before.exp, (x,), R.Tensor((16,), "float32"))
            R.output(y)
        return y


@T.prim_func(private=True)
def exp_in_rows(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        b[i, j] = T.exp(a[i, j])


@I.ir_module
class After:
    @T.prim_func(private=True)
    def exp(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"operator_name": "relax.exp"})
        for i in range(16):
            b[i] = T.exp(a[i])

    @T.prim_func(private=True)
    def relax_exp_replacement(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        T.func_attr({"operator_name": "relax.exp"})
        for i, j in T.grid(4, 4):
            b[i, j] = T.exp(a[i, j])

    @R.function
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        cls = After
        with R.dataflow():
            rows = R.layout_transform(x, lambda i: (i // 4, i % 4))
            out = R.Tensor((4, 4), "float32")
            result = R.call_tir(cls.relax_exp_replacement, (rows,), out)
            y = R.layout_transform(result, lambda i, j: (i * 4 + j,))
            R.output(y)
        return y


step = AlterOpImpl({"relax.exp": exp_in_rows}, {"relax.exp": [lambda i: (i // 4, i % 4)] * 2})
