"""What TopologicalSort does: the module before it, and after it."""

from relaxpy.relax.transform import TopologicalSort
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.log(x)
            c = R.add(x, a)
            d = R.add(b, c)
            R.output(d)
        return d


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            c = R.add(x, a)
            b = R.log(x)
            d = R.add(b, c)
            R.output(d)
        return d


step = TopologicalSort()
