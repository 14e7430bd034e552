"""The number of bytes that allocations need, and the calls that allocate them."""

from __future__ import annotations

from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import Call, DataTypeImm, Expr, PrimValue, ShapeExpr
from relaxpy.ir.tir import expr as tir, ops

ALLOC_TENSOR = "relax.builtin.alloc_tensor"


def byte_count(shape: ShapeExpr, dtype: DataType) -> tir.PrimExpr:
    """The size of a tensor in bytes: a constant, times the dimensions that are not constant."""
    factor, dims = dtype.itemsize, [d for d in shape.values if not isinstance(d, tir.IntImm)]
    for dim in shape.values:
        if isinstance(dim, tir.IntImm):
            factor *= dim.value
    if not dims:
        return ops.const(factor, INT64)
    total = dims[0]
    for dim in dims[1:]:
        total = ops.mul(total, dim)
    return total if factor == 1 else ops.mul(ops.const(factor, INT64), total)


def storage_call(call: Call, size: tir.PrimExpr, dtype: DataType) -> Call:
    """The allocation of `size` bytes where `call`, a `builtin.alloc_tensor`, has its tensor."""
    device, scope = call.args[2:4]
    args = (ShapeExpr((size,)), device, scope, DataTypeImm(dtype))
    return Call(Op.get("relax.memory.alloc_storage"), args, span=call.span)


def tensor_call(call: Call, storage: Expr) -> Call:
    """The tensor of `call`, a `builtin.alloc_tensor`, at the beginning of a storage."""
    args = (storage, PrimValue(ops.const(0, INT64)), call.args[0], call.args[1])
    return Call(Op.get("relax.memory.alloc_tensor"), args, call.attrs, span=call.span)
