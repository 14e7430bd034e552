"""Products of matrices."""

from __future__ import annotations

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.shared.tensors import dtype_of, is_float, scalar
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R


@converter("MatMul")
def matmul(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b)


@converter("Gemm", ignored=["broadcast"])
def gemm(
    cx: Context,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Expr:
    left = R.permute_dims(a) if transA else a
    right = R.permute_dims(b) if transB else b
    result = _scaled(R.matmul(left, right), alpha)
    return result if c is None or beta == 0.0 else R.add(result, _scaled(c, beta))


def _scaled(x: Expr, factor: float) -> Expr:
    """The product, of integers rounded towards zero."""
    if factor == 1.0:
        return x
    if is_float(x) or factor.is_integer():
        return R.multiply(x, scalar(factor, x))
    return R.astype(R.multiply(R.astype(x, "float64"), const(factor, "float64")), dtype_of(x))
