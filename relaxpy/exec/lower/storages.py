"""Explicit storage whose tensors can be allocated one by one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import inf

from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.lower.uses import CalleeOf, filled_params
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.storage import released
from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation, CallKind, is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops

_KERNEL_CALLS = (CallKind.KERNEL, CallKind.DYNAMIC_KERNEL)


def allocation_of(value: rx.Expr | Op) -> Allocation | None:
    """The kind of allocation of a call, if relaxpy's implementation of the operator is used."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return None
    record = value.op.record
    is_own = record.runtime is not None and is_of_relaxpy(record.runtime)
    return record.allocates if is_own else None


def is_release(value: rx.Expr | Op) -> bool:
    """Return whether a call only marks a value as dead, which Python's reference counts do."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    return value.op.record.runtime is released


def is_runtime_function(value: rx.Expr | Op, name: str = "") -> bool:
    """Return whether a call is of `vm.builtin.name`, or any, which no user has replaced."""
    callee = value.op if isinstance(value, rx.Call) else None
    if not isinstance(callee, rx.ExternFunc):
        return False
    symbol = callee.global_symbol
    if symbol != f"vm.builtin.{name}" if name else not symbol.startswith("vm.builtin."):
        return False
    return is_of_relaxpy(get_global_func(symbol, allow_missing=True))


def is_reshape(value: rx.Expr | Op) -> bool:
    """Return whether a call is a reshape, whose result is a copy."""
    return rx.is_call_of(value, "relax.reshape") or is_runtime_function(value, "reshape")


def separate_storages(nodes: Iterable[Node], callee_of: CalleeOf) -> frozenset[rx.Var]:
    """The variables of storage, in the sequences among `nodes`, that need not exist (OPT-10).

    Such storage is only used for tensors that are provably inside it, in the same sequence. When
    another tensor is allocated in it, earlier ones are dead, and only kernels have used them; a
    kernel first overwrites the new one. So each tensor can have its own memory.
    """
    found: set[rx.Var] = set()
    for node in nodes:
        if isinstance(node, rx.SeqExpr):
            found |= _Storages(node, callee_of).separate()
    return frozenset(found)


class _Storages:
    """The storage that a sequence allocates, the tensors in it, and their last uses."""

    def __init__(self, seq: rx.SeqExpr, callee_of: CalleeOf) -> None:
        self._callee_of = callee_of
        self._first: dict[rx.Var, rx.Expr] = {}
        self._sizes: dict[rx.Var, tir.PrimExpr] = {}
        self._tensors: dict[rx.Var, list[tuple[int, rx.Var]]] = {}
        self._last: dict[rx.Var, float] = {}
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        for index, binding in enumerate(bindings):
            self._enter(index, binding)
        if self._sizes:
            self._use(seq.body, inf)

    def separate(self) -> set[rx.Var]:
        """The storage that is not needed."""
        return {storage for storage, tensors in self._tensors.items() if self._in_turn(tensors)}

    def _in_turn(self, tensors: list[tuple[int, rx.Var]]) -> bool:
        return all(
            self._last.get(before, 0) < index and self._is_filled(var)
            for (_, before), (index, var) in pairwise(tensors)
        )

    def _is_filled(self, tensor: rx.Var) -> bool:
        """Return whether the first use of a tensor overwrites all of it."""
        match self._first.get(tensor):
            case None:
                return True
            case rx.Call(op=rx.GlobalVar() as name, args=args):
                pass
            case rx.Call(args=[rx.GlobalVar() as name, rx.Tuple(fields=args)]):
                pass
            case _:
                return False
        callee = self._callee_of(name)
        kernel = callee.prim_func if isinstance(callee, GlobalCallee) else None
        positions = {index for index, arg in enumerate(args) if arg is tensor}
        return kernel is not None and len(positions) == 1 and positions <= filled_params(kernel)

    def _enter(self, index: int, binding: rx.Binding) -> None:
        value, var = binding.value, binding.var
        allocation = allocation_of(value)
        if is_release(value):
            return
        if allocation is not None and var is not None and isinstance(binding, rx.VarBinding):
            assert isinstance(value, rx.Call)
            if allocation.storage:
                size = _storage_size(value, allocation)
                if size is not None:
                    self._sizes[var] = size
                    self._tensors[var] = []
                return
            storage = value.args[0]
            if storage in self._sizes and self._lies_in(value, allocation, self._sizes[storage]):
                self._tensors[storage].append((index, var))
                return
        if self._sizes:
            kernel = isinstance(binding, rx.VarBinding) and _is_kernel_call(value)
            self._use(value, index if kernel else inf)

    def _use(self, value: rx.Expr, index: float) -> None:
        for var in occurring_vars(value):
            self._first.setdefault(var, value)
            if var in self._sizes:
                del self._sizes[var], self._tensors[var]
            else:
                self._last[var] = max(index, self._last.get(var, 0))

    def _lies_in(self, call: rx.Call, allocation: Allocation, size: tir.PrimExpr) -> bool:
        offset = call.args[1]
        nbytes = _bytes(call.args[allocation.shape], call.args[allocation.dtype])
        if nbytes is None or not isinstance(offset, rx.PrimValue) or offset.value.dtype != INT64:
            return False
        first, zero = offset.value, ops.const(0, INT64)
        return always(ops.compare(tir.GE, first, zero)) and always(
            ops.compare(tir.LE, ops.add(first, nbytes), size)
        )


def _is_kernel_call(value: rx.Expr | Op) -> bool:
    """Return whether a call only runs a kernel or copies a tensor, and returns no argument."""
    if not isinstance(value, rx.Call):
        return False
    if is_reshape(value):
        return True
    if isinstance(value.op, Op):
        is_kernel = value.op.record.calls in _KERNEL_CALLS
        return is_kernel and isinstance(value.args[0], rx.GlobalVar)
    sinfo = value.struct_info
    is_unit = isinstance(sinfo, rx.TupleStructInfo) and not sinfo.fields
    return isinstance(value.op, rx.GlobalVar) and is_unit


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
