"""Estimates of the memory that the functions of a module allocate."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from relaxpy.errors import counted
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import expect, fields_of
from relaxpy.ir.tir.expr import IntImm
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


@dataclass(slots=True)
class _Total:
    """The allocations of one kind: bytes and number, and the number of those of unknown size."""

    nbytes: int = 0
    known: int = 0
    unknown: int = 0

    def add(self, nbytes: int | None) -> None:
        """Count one more allocation."""
        if nbytes is None:
            self.unknown += 1
        else:
            self.nbytes += nbytes
            self.known += 1

    def text(self, what: str) -> str:
        """The totals as text."""
        unknown = f", {self.unknown} more of unknown size" if self.unknown else ""
        return f"{counted(self.known, what)} of {counted(self.nbytes, 'byte')} in all{unknown}"


@user_facing
def estimate_memory_usage(mod: IRModule | rx.Function) -> str:
    """A report of the allocations of each function, in bytes: its tensors, and their storage.

    Tensors are those of `alloc_tensor`, and new outputs of `call_tir` and `call_dps_packed`. A
    storage that memory planning uses for several tensors counts once. So does every allocation in
    the source, in both branches of an If, however often it is executed.

    Errors:
        MisuseError (also TypeError): `mod` is neither a module nor a Relax function.
    """
    expect(mod, IRModule, rx.Function)
    if isinstance(mod, rx.Function):
        name = mod.attrs.get("global_symbol")
        return _report(str(name or "the function"), mod)
    functions = ((n, f) for n, f in mod.functions_by_name.items() if isinstance(f, rx.Function))
    return "\n".join(_report(name, func) for name, func in functions)


def _report(name: str, func: rx.Function) -> str:
    tensors, storages, unplanned = _Total(), _Total(), _Total()
    for call in walk(func.body):
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            continue
        allocation = call.op.record.allocates
        if allocation is not None and allocation.storage:
            storages.add(allocated_bytes(call, allocation))
        elif allocation is not None:
            nbytes = allocated_bytes(call, allocation)
            tensors.add(nbytes)
            if not allocation.planned:
                unplanned.add(nbytes)
        for nbytes in new_outputs(call, call.op):
            tensors.add(nbytes)
            unplanned.add(nbytes)
    lines = [name, f"  without planning: {tensors.text('tensor')}"]
    if storages.known or storages.unknown:
        planned = storages.nbytes + unplanned.nbytes
        share = f" ({planned / tensors.nbytes:.1%} of the bytes)" if tensors.nbytes else ""
        beside = (
            f", beside {unplanned.text('tensor')}" if unplanned.known or unplanned.unknown else ""
        )
        lines.append(f"  with planning: {storages.text('storage')}{beside}{share}")
    return "\n".join(lines)


def new_outputs(call: rx.Call, op: Op) -> Iterator[int | None]:
    """The sizes of the tensors that a call of a function allocates for its outputs."""
    if op.record.calls is None or not op.record.calls.has_outputs:
        return
    indices = call.attrs.get("inplace_indices")
    outputs = [f for sinfo in call.sinfo_args for f in fields_of(sinfo)]
    for k, sinfo in enumerate(outputs):
        if indices is None or (isinstance(indices, tuple) and indices[k : k + 1] == (-1,)):
            known = isinstance(sinfo, rx.TensorStructInfo)
            yield _bytes(sinfo.shape, sinfo.dtype) if known else None  # type: ignore[attr-defined]


def allocated_bytes(call: rx.Call, allocation: Allocation) -> int | None:
    """The number of bytes that a call allocates."""
    shape, dtype = _operand(call, allocation.shape), _operand(call, allocation.dtype)
    if allocation.in_bytes and isinstance(shape, rx.ShapeExpr) and len(shape.values) == 1:
        return _bytes(shape, DataType("uint8"))
    return _bytes(shape, dtype)


def _operand(call: rx.Call, index: int) -> rx.Expr | None:
    return call.args[index] if index < len(call.args) else None


def _bytes(shape: rx.Expr | None, dtype: rx.Expr | DataType | None) -> int | None:
    kind = dtype.value if isinstance(dtype, rx.DataTypeImm) else dtype
    if not isinstance(shape, rx.ShapeExpr) or not isinstance(kind, DataType):
        return None
    if kind.is_void or kind.is_scalable:
        return None
    sizes = [size.value for size in shape.values if isinstance(size, IntImm)]
    return prod(sizes) * kind.itemsize if len(sizes) == len(shape.values) else None
