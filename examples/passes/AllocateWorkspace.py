"""What AllocateWorkspace does: the module before it, and after it."""

from relaxpy.relax.transform import AllocateWorkspace
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def compiled(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Codegen": "example", "WorkspaceSize": 64})
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Before
        with R.dataflow():
            y = cls.compiled(x)
            R.output(y)
        return y


@I.ir_module
class After:
    @R.function
    def compiled1(x: R.Tensor((4,), "float32"), workspace: R.Tensor((64,), "uint8")) -> R.Tensor(
        (4,), "float32"
    ):
        R.func_attr({"Codegen": "example"})
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = After
        with R.dataflow():
            workspace = R.builtin.alloc_tensor(R.shape([64]), "uint8", 0, "global")
            y = cls.compiled1(x, workspace)
            R.output(y)
        return y


step = AllocateWorkspace()
