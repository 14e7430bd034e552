"""Products of matrices."""

from __future__ import annotations

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.shared.tensors import scalar
from relaxpy.ir.relax.nodes import Expr
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
    result = R.matmul(left, right)
    if alpha != 1.0:
        result = R.multiply(result, scalar(alpha, a))
    if c is None or beta == 0.0:
        return result
    return R.add(result, c if beta == 1.0 else R.multiply(c, scalar(beta, a)))
