"""What MergeCompositeFunctions does: the module before it, and after it."""

from relaxpy.relax.transform import MergeCompositeFunctions
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function(private=True)
    def fused_abs(x: R.Tensor((4,), "float32")):
        R.func_attr({"Composite": "mine.abs", "Primitive": True})
        with R.dataflow():
            y = R.abs(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Before
        with R.dataflow():
            y = cls.fused_abs(x)
            z = cls.fused_abs(y)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def fused_abs_abs_mine(x: R.Tensor((4,), "float32")):
        R.func_attr({"Codegen": "mine"})

        @R.function
        def inner(x: R.Tensor((4,), "float32")):
            R.func_attr({"Composite": "mine.abs"})
            with R.dataflow():
                y = R.abs(x)
                R.output(y)
            return y

        y = inner(x)
        z = inner(y)
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            z = cls.fused_abs_abs_mine(x)
            R.output(z)
        return z


step = MergeCompositeFunctions()
