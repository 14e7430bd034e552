"""Storage that a program allocates and need not exist."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from relaxpy.exec.lower.known import allocation_of
from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.op_record import Allocation
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import filled_buffers

if TYPE_CHECKING:
    from relaxpy.exec.lower.lifetimes import Lifetimes


def separate_storages(bindings: Sequence[rx.Binding], lifetimes: Lifetimes) -> set[rx.Expr]:
    """The variables of storage, in the `bindings` of a sequence, that need not exist (OPT-10).

    Such storage is only used for tensors that are provably inside it, in the same sequence. When
    another tensor is allocated in it, earlier ones are dead, and only kernels have used them; a
    kernel first overwrites the new one. So each tensor can have its own memory.
    """
    sizes: dict[rx.Expr, tir.PrimExpr] = {}
    tensors: dict[rx.Expr, list[tuple[int, rx.Var]]] = {}
    for index, binding in enumerate(bindings):
        value, allocation = binding.value, allocation_of(binding.value)
        if allocation is None or not isinstance(binding, rx.VarBinding):
            continue
        assert isinstance(value, rx.Call)
        var, storage = binding.var, value.args[0]
        if allocation.storage:
            size = _storage_size(value, allocation)
            if size is not None and var not in lifetimes.observed:
                sizes[var], tensors[var] = size, []
        elif (size := sizes.get(storage)) is not None and _lies_in(value, allocation, size):
            tensors[storage].append((index, var))
    return {
        storage
        for storage, within in tensors.items()
        if len(within) == lifetimes.tensors[storage] and _in_turn(within, lifetimes)
    }


def _in_turn(tensors: Sequence[tuple[int, rx.Var]], lifetimes: Lifetimes) -> bool:
    return all(
        lifetimes.last_use(before) < index and _is_filled(var, lifetimes)
        for (_, before), (index, var) in pairwise(tensors)
    )


def _is_filled(tensor: rx.Var, lifetimes: Lifetimes) -> bool:
    """True if the first use of a tensor overwrites all of it."""
    first = lifetimes.first_use(tensor)
    if first is None:
        return True
    callee, operands = lifetimes.kernel(first)
    kernel = None if callee is None else callee.prim_func
    written = [index for index, operand in enumerate(operands) if operand is tensor]
    if kernel is None or len(written) != 1:
        return False
    return kernel.buffer_map_items[written[0]] in set(filled_buffers(kernel.body))


def _lies_in(call: rx.Call, allocation: Allocation, size: tir.PrimExpr) -> bool:
    offset = call.args[1]
    nbytes = _bytes(call.args[allocation.shape], call.args[allocation.dtype])
    if nbytes is None or not isinstance(offset, rx.PrimValue) or offset.value.dtype != INT64:
        return False
    first, zero = offset.value, ops.const(0, INT64)
    return always(ops.compare(tir.GE, first, zero)) and always(
        ops.compare(tir.LE, ops.add(first, nbytes), size)
    )


def _storage_size(call: rx.Call, allocation: Allocation) -> tir.PrimExpr | None:
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
    return ops.mul(product(dims), ops.const(dtype.value.numpy().itemsize, INT64))


def _dimensions(shape: rx.Expr) -> tuple[tir.PrimExpr, ...] | None:
    if isinstance(shape, rx.ShapeExpr):
        return shape.values
    sinfo = shape.struct_info
    return sinfo.values if isinstance(sinfo, rx.ShapeStructInfo) else None
