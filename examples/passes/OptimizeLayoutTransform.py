"""What OptimizeLayoutTransform does: the module before it, and after it."""

from relaxpy.relax.transform import OptimizeLayoutTransform
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            rows = R.exp(x)
            flat = R.layout_transform(rows, lambda i, j: (i * 4 + j,))
            again = R.layout_transform(flat, lambda i: (i // 4, i % 4))
            y = R.tanh(again)
            R.output(y)
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            rows = R.exp(x)
            y = R.tanh(rows)
            R.output(y)
        return y


step = OptimizeLayoutTransform()
