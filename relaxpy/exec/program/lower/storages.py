"""The sizes of explicit storage and of the tensors in it."""

from __future__ import annotations

from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.op_record import Allocation
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops


def is_inside(call: rx.Call, allocation: Allocation, size: tir.PrimExpr) -> bool:
    """True if a tensor that a call allocates is provably inside of storage of this size."""
    offset = call.args[1]
    nbytes = _bytes(call.args[allocation.shape], call.args[allocation.dtype])
    if nbytes is None or not isinstance(offset, rx.PrimValue) or offset.value.dtype != INT64:
        return False
    first, zero = offset.value, ops.const(0, INT64)
    return always(first >= zero) and always(first + nbytes <= size)


def size_of_storage(call: rx.Call, allocation: Allocation) -> tir.PrimExpr | None:
    """The number of bytes of a storage, if it is known."""
    shape = call.args[allocation.shape]
    dims = _dimensions(shape)
    if dims is not None and allocation.in_bytes and len(dims) == 1:
        return dims[0]
    return _bytes(shape, call.args[allocation.dtype])


def _bytes(shape: rx.Expr, dtype: rx.Expr) -> tir.PrimExpr | None:
    dims = _dimensions(shape)
    if dims is None or not isinstance(dtype, rx.DataTypeImm):
        return None
    return product(dims) * ops.const(dtype.value.numpy().itemsize, INT64)


def _dimensions(shape: rx.Expr) -> tuple[tir.PrimExpr, ...] | None:
    if isinstance(shape, rx.ShapeExpr):
        return shape.values
    sinfo = shape.struct_info
    return sinfo.values if isinstance(sinfo, rx.ShapeStructInfo) else None
