"""What LambdaLift does: the module before it, and after it."""

from relaxpy.relax.transform import LambdaLift
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            z = R.add(x, y)
            return z

        w = inner(x)
        return w


@I.ir_module
class After:
    @R.function(private=True)
    def main_inner(y: R.Tensor((4,), "float32"), x: R.Tensor((4,), "float32")) -> R.Tensor(
        (4,), "float32"
    ):
        z = R.add(x, y)
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        inner = R.make_closure(After.main_inner, (x,))
        w = R.invoke_pure_closure(inner, (x,), sinfo_args=R.Tensor((4,), "float32"))
        return w


step = LambdaLift()
