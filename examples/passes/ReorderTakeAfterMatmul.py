"""What ReorderTakeAfterMatmul does: the module before it, and after it."""

from relaxpy.relax.transform import ReorderTakeAfterMatmul
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        table: R.Tensor((3, 100), "float32"),
        indices: R.Tensor((5,), "int64"),
    ):
        weight = R.take(table, indices, axis=1)
        y = R.matmul(x, weight)
        return y


@I.ir_module
class After:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        table: R.Tensor((3, 100), "float32"),
        indices: R.Tensor((5,), "int64"),
    ):
        products = R.matmul(x, table)
        y = R.take(products, indices, axis=1)
        return y


step = ReorderTakeAfterMatmul()
