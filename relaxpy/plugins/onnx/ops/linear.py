"""Matrix multiplication."""

from __future__ import annotations

import functools

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import dtype_of, is_float, scalar
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import converter


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
    product = R.matmul(left, right)
    terms = [(product, alpha), *([] if c is None or beta == 0.0 else [(c, beta)])]
    if is_float(a) or all(factor.is_integer() for _, factor in terms):
        return functools.reduce(R.add, [_scaled(x, factor) for x, factor in terms])
    wide = [_scaled(R.astype(x, "float64"), factor) for x, factor in terms]
    return R.astype(functools.reduce(R.add, wide), dtype_of(a))


def _scaled(x: Expr, factor: float) -> Expr:
    result: Expr = x if factor == 1.0 else R.multiply(x, scalar(factor, x))
    return result
