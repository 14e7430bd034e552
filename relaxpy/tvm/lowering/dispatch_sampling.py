"""DispatchSampling: sampling becomes a running sum and a search."""

from __future__ import annotations

from typing import cast

from typing_extensions import override

from relaxpy.ir.core.dtype import FLOAT64, DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import known_shape, same, te_kernel
from relaxpy.ir.relax.transform.legalize import legalized
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import intrin, ops, reduce
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class DispatchSampling(Pass):
    """Replaces `multinomial_from_uniform` by a running sum of the probabilities and a search in it.

    The sum is taken in float64, as the operator takes it. A call stays unchanged if a shape or
    datatype is unknown, if the number of categories is not a literal, or if the numbers of samples
    and of indices may differ.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return legalized(mod, {Op("relax.multinomial_from_uniform"): _dispatched}.get)


def _dispatched(builder: BlockBuilder, call: Call) -> Expr:
    prob, samples, rows = call.args
    categories = known_shape(builder, prob)[1]
    sizes = known_shape(builder, samples)[0], known_shape(builder, rows)[0]
    if not isinstance(categories, IntImm) or not categories.value or not same(*sizes):
        return call
    sums = builder.emit(R.cumsum(prob, axis=1, dtype=FLOAT64, span=call.span), span=call.span)
    dtype = str(call.attrs["dtype"])
    kernel = te_kernel(builder, _search, "get_sample_index", sums, samples, rows, dtype=dtype)
    return replace(kernel, span=call.span)


def _search(sums: Tensor, samples: Tensor, rows: Tensor, dtype: str) -> Tensor:
    """For each sample, the first column of its row that exceeds it, or else the last one."""
    count = sums.shape[1]
    k = te.reduce_axis((ops.const(0, count.dtype), count), "k")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        exceeds = ops.cast_to(samples(i, j), FLOAT64) < sums(rows(i, j), k.var)
        last = ops.sub(count, ops.const(1, count.dtype))
        return cast("PrimExpr", reduce.min(intrin.if_then_else(exceeds, k.var, last), axis=k))

    first = te.compute(samples.shape, element, name="get_sample_index")
    return as_dtype(first, DataType(dtype))
