"""DispatchSortScan: running sums and products become calls of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from relaxpy.ir.arith.prove import always
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.op.definition.rules import known_shape, te_kernel
from relaxpy.ir.relax.transform.legalize import Legalization, legalized
from relaxpy.ir.te.topi import reduction as topi
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass, replace

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
