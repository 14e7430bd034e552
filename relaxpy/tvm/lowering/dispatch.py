"""DispatchSampling: sampling becomes a running sum and a search.

DispatchSortScan: running sums and products become calls of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from typing_extensions import override

from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import FLOAT64, DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import known_shape, same, te_kernel
from relaxpy.ir.relax.transform.legalize import Legalization, legalized
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import reduction as topi
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
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


_SCANS: Final = (Op("relax.cumsum"), Op("relax.cumprod"))


def _sort(builder: BlockBuilder, call: Call) -> Expr:
    axis, descending = call.attrs["axis"], call.attrs["descending"]
    return _kernel(builder, call, topi.sort, axis=axis, is_ascend=not descending)


def _argsort(builder: BlockBuilder, call: Call) -> Expr:
    axis, descending = call.attrs["axis"], call.attrs["descending"]
    dtype = str(call.attrs["dtype"])
    return _kernel(builder, call, topi.argsort, axis=axis, is_ascend=not descending, dtype=dtype)


def _topk(builder: BlockBuilder, call: Call) -> Expr:
    attrs: dict[str, Any] = dict(call.attrs)
    size, k = known_shape(builder, call.args[0])[attrs["axis"]], attrs["k"]
    if k > 0 and not always(ops.compare(tir.GE, size, ops.const(k, size.dtype))):
        return call
    return _kernel(
        builder,
        call,
        topi.topk,
        k=k,
        axis=attrs["axis"],
        ret_type=attrs["ret_type"],
        is_ascend=not attrs["largest"],
        dtype=str(attrs["dtype"]),
    )


def _kernel(
    builder: BlockBuilder, call: Call, function: Callable[..., object], **options: object
) -> Expr:
    kernel = te_kernel(builder, function, function.__name__, *call.args, **options)
    return replace(kernel, span=call.span)


_SORTS: Final = {Op("relax.sort"): _sort, Op("relax.argsort"): _argsort, Op("relax.topk"): _topk}


@dataclass(frozen=True)
class DispatchSortScan(Pass):
    """Replaces calls of cumsum, cumprod, sort, argsort and topk by calls of kernels.

    The kernels of the last three call the packed functions `tvm.contrib.sort.…`. A call whose
    operand has an unknown shape or datatype stays unchanged, and so does a topk with a k that may
    exceed the number of elements.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def rule_of(op: Op) -> Legalization | None:
            return op.record.legalize if op in _SCANS else _SORTS.get(op)

        return legalized(mod, rule_of)
