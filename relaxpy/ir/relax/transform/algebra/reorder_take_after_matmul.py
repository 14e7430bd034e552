"""ReorderTakeAfterMatmul: `take` is applied to the result of a matmul instead of an operand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.dpl.constructors import is_op, wildcard
from relaxpy.ir.relax.dpl.pattern import DFPattern
from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import tensor_sinfo
from relaxpy.ir.relax.transform.algebra.products import shape_of
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class ReorderTakeAfterMatmul(Pass):
    """Multiplies by a whole table of weights, and takes slices of the result.

    x @ take(weights, indices, axis=-1) becomes take(x @ weights, indices, axis=-1), for a matrix of
    weights. Where `indices` choose a matrix of weights for each batch of x, x is multiplied by all
    of them at once. Rounding may differ.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        x, table, indices = wildcard(), wildcard(), wildcard()
        taken = is_op("relax.take")(table, indices)

        def reordered(expr: Call, matches: Mapping[DFPattern, Expr]) -> Expr | None:
            take = matches[taken]
            assert isinstance(take, Call)
            return _reordered(expr, matches[x], take)

        pattern = is_op("relax.matmul")(x, taken)
        return ExprPatternRewriter(pattern, reordered).transform(normalize_module(mod), ctx)


def _reordered(expr: Call, x: Expr, take: Call) -> Expr | None:
    """The matmul after reordering, or None if ranks or sizes forbid that or are not known."""
    table, indices = take.args
    sinfos = [tensor_sinfo(e) for e in (x, table, indices, expr)]
    if any(sinfo is None or sinfo.ndim < 0 for sinfo in sinfos):
        return None
    x_ndim, table_ndim, index_ndim, ndim = (sinfo.ndim for sinfo in sinfos if sinfo is not None)
    axis, mode = take.attrs["axis"], take.attrs["mode"]
    if not isinstance(axis, int) or index_ndim != 1:
        return None
    axis %= table_ndim
    if axis == table_ndim - 1 == 1:
        whole = _product(x, table, expr)
        return cast("Expr", R.take(whole, indices, axis=ndim - 1, mode=mode))
    sizes, x_sizes = shape_of(table), shape_of(x)
    if x_ndim != 3 or table_ndim != 3 or axis != 0 or sizes is None or x_sizes is None:
        return None
    count, rows, columns = sizes
    matrix = R.reshape(R.permute_dims(table, (1, 0, 2)), ShapeExpr((rows, count * columns)))
    shape = ShapeExpr((x_sizes[0], x_sizes[1], count, columns))
    chosen = R.take(R.reshape(_product(x, matrix, expr), shape), indices, axis=2, mode=mode)
    return cast("Expr", R.einsum((chosen,), "ijik->ijk"))


def _product(x: Expr, y: Expr, like: Expr) -> Call:
    """The matmul, with the datatype of another matmul."""
    sinfo = tensor_sinfo(like)
    dtypes = {info.dtype for info in map(tensor_sinfo, (x, y)) if info is not None}
    if sinfo is None or sinfo.dtype.is_void or dtypes == {sinfo.dtype}:
        return cast("Call", R.matmul(x, y))
    return cast("Call", R.matmul(x, y, out_dtype=sinfo.dtype))
