"""What FuseOpsByPattern does: the module before it, and after it."""

from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.relax.transform import FuseOpsByPattern
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.abs(x)
            z = R.sqrt(y)
            R.output(z)
        return z


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            z = cls.fused_relax_abs_relax_sqrt(x)
            R.output(z)
        return z

    @R.function(private=True)
    def fused_relax_abs_relax_sqrt(x: R.Tensor((4,), "float32")):
        R.func_attr({"Composite": "mine.root", "Primitive": True})
        with R.dataflow():
            y = R.abs(x)
            z = R.sqrt(y)
            R.output(z)
        return z


step = FuseOpsByPattern([("mine.root", is_op("relax.sqrt")(is_op("relax.abs")(wildcard())))])
