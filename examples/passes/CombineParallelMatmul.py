"""What CombineParallelMatmul does: the module before it, and after it."""

from relaxpy.relax.transform import CombineParallelMatmul
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        a: R.Tensor((3, 4), "float32"),
        b: R.Tensor((3, 5), "float32"),
    ):
        with R.dataflow():
            p = R.matmul(x, a)
            q = R.matmul(x, b)
            R.output(p, q)
        return (p, q)


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        a: R.Tensor((3, 4), "float32"),
        b: R.Tensor((3, 5), "float32"),
    ):
        with R.dataflow():
            w = R.concat((a, b), axis=1)
            r = R.matmul(x, w, out_dtype="float32")
            both = R.split(r, indices_or_sections=[4], axis=1)
            p = both[0]
            q = both[1]
            R.output(p, q)
        return (p, q)


step = CombineParallelMatmul()
