"""The exponential of matrices."""

from __future__ import annotations

from typing import Any

from relaxpy.frontend.shared.loops import Loops, kernel
from relaxpy.frontend.shared.tensors import dtype_of, reshaped, shape_of
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.ops.factors import matrices, size_of
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select

#: Of matrices of norm 1/2, so many terms of the series leave less than the epsilon of float64.
_TERMS = 18
#: The largest float64 is a power of 2 below this.
_HALVINGS = 1025


@converter("linalg_matrix_exp")
def matrix_exp(cx: Context, x: Expr) -> Expr:
    a = matrices(cx, cx.tensor(x, "float64"))

    def write(k: Loops, a: Any, out: Any) -> None:
        n = a.shape[1]
        with k.loop(a.shape[0]) as b:
            norm = k.local(ops.const(0.0, "float64"))
            with k.loop(n) as i:
                total = k.local(ops.const(0.0, "float64"))
                with k.loop(n) as j:
                    k.store(total, 0, total[0] + size_of(a[b, i, j]))
                    k.store(out, (b, i, j), ops.cast_to(i == j, out.dtype))
                k.store(norm, 0, Select(total[0] > norm[0], total[0], norm[0]))
            halvings = k.local(ops.const(0, "int64"))
            scale = k.local(ops.const(1.0, "float64"))
            with k.repeat((norm[0] * scale[0] > 0.5) & (halvings[0] < _HALVINGS)):
                k.store(scale, 0, scale[0] * 0.5)
                k.store(halvings, 0, halvings[0] + 1)
            product = k.array([n, n], "float64")
            with k.loop(_TERMS) as step:
                _multiply(k, a, out, product, b)
                factor = scale[0] / ops.cast_to(_TERMS - step, out.dtype)
                with k.loop(n) as i, k.loop(n) as j:
                    one = ops.cast_to(i == j, out.dtype)
                    k.store(out, (b, i, j), product[i, j] * factor + one)
            with k.loop(halvings[0]):
                _multiply(k, out, out, product, b)
                with k.loop(n) as i, k.loop(n) as j:
                    k.store(out, (b, i, j), product[i, j])

    (out,) = kernel(cx, "matrix_exp", [(shape_of(a), "float64")], [a], write)
    return cx.tensor(reshaped(out, shape_of(x)), dtype_of(x))


def _multiply(k: Loops, x: Any, y: Any, product: Any, b: Any) -> None:
    n = x.shape[1]
    with k.loop(n) as i, k.loop(n) as j:
        total = k.local(ops.const(0.0, "float64"))
        with k.loop(n) as p:
            k.store(total, 0, total[0] + x[b, i, p] * y[b, p, j])
        k.store(product, (i, j), total[0])
