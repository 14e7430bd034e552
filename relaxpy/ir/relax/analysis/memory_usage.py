"""How much memory the functions of a module allocate, as far as sizes are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from relaxpy.entry import user_facing
from relaxpy.errors import counted
from relaxpy.ir.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.expect import expect
from relaxpy.ir.relax.nodes import (
    Call,
    DataTypeImm,
    Expr,
    Function,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relaxpy.ir.tir.expr import IntImm
from relaxpy.ir.traverse import walk

_UNPLANNED = "relax.builtin.alloc_tensor"
_TENSORS = {
    _UNPLANNED: (0, 1),
    "relax.memory.alloc_tensor": (2, 3),
    "relax.vm.alloc_tensor": (2, 3),
}
_STORAGES = {"relax.memory.alloc_storage": (0, 3), "relax.vm.alloc_storage": (0, 2)}
"""Which operands of what allocates are the shape and the datatype."""
_CALLS = (
    "relax.call_tir",
    "relax.call_tir_with_grad",
    "relax.call_tir_inplace",
    "relax.call_dps_packed",
)


@dataclass(slots=True)
class _Total:
    """Allocations of one kind: how many bytes in how many, and how many more of unknown size."""

    nbytes: int = 0
    known: int = 0
    unknown: int = 0

    def add(self, nbytes: int | None) -> None:
        """Count one more."""
        if nbytes is None:
            self.unknown += 1
        else:
            self.nbytes += nbytes
            self.known += 1

    def text(self, what: str) -> str:
        """The totals in words."""
        open_ones = f", {self.unknown} more of unknown size" if self.unknown else ""
        return f"{counted(self.known, what)} of {counted(self.nbytes, 'byte')} in all{open_ones}"


@user_facing
def estimate_memory_usage(mod: IRModule | Function) -> str:
    """A report of what each function allocates, in bytes: its tensors, and the storage for them.

    Tensors are those of `alloc_tensor`, and new outputs of `call_tir` and `call_dps_packed`; what
    memory planning puts into one storage counts once there. Every allocation in the text counts
    once, in both branches of an If, however often it is run.

    Errors:
        MisuseError (also TypeError): `mod` is neither a module nor a Relax function.
    """
    expect(mod, IRModule, Function)
    if isinstance(mod, Function):
        name = mod.attrs.get("global_symbol")
        return _report(str(name or "the function"), mod)
    functions = ((n, f) for n, f in mod.functions_by_name.items() if isinstance(f, Function))
    return "\n".join(_report(name, func) for name, func in functions)


def _report(name: str, func: Function) -> str:
    tensors, storages, left = _Total(), _Total(), _Total()
    calls = [node for node in walk(func.body) if isinstance(node, Call) and isinstance(node.op, Op)]
    for call in calls:
        assert isinstance(call.op, Op)
        if call.op.name in _STORAGES:
            storages.add(_storage_bytes(call, *_STORAGES[call.op.name]))
        for nbytes in _tensor_bytes(call, call.op.name):
            tensors.add(nbytes)
            if call.op.name == _UNPLANNED or call.op.name in _CALLS:
                left.add(nbytes)
    lines = [name, f"  without planning: {tensors.text('tensor')}"]
    if storages.known or storages.unknown:
        planned = storages.nbytes + left.nbytes
        share = f" ({planned / tensors.nbytes:.1%} of the bytes)" if tensors.nbytes else ""
        beside = f", beside {left.text('tensor')}" if left.known or left.unknown else ""
        lines.append(f"  with planning: {storages.text('storage')}{beside}{share}")
    return "\n".join(lines)


def _tensor_bytes(call: Call, name: str) -> Iterator[int | None]:
    """The sizes of the tensors that a call makes."""
    if name in _TENSORS:
        shape, dtype = (_operand(call, k) for k in _TENSORS[name])
        yield _bytes(shape, dtype)
    elif name in _CALLS:
        new = call.attrs.get("inplace_indices")
        outputs = [f for info in call.sinfo_args for f in _fields(info)]
        for k, info in enumerate(outputs):
            if new is None or (isinstance(new, tuple) and new[k : k + 1] == (-1,)):
                known = isinstance(info, TensorStructInfo)
                yield _bytes(info.shape, info.dtype) if known else None  # type: ignore[attr-defined]


def _fields(info: StructInfo) -> tuple[StructInfo, ...]:
    return info.fields if isinstance(info, TupleStructInfo) else (info,)


def _storage_bytes(call: Call, shape: int, dtype: int) -> int | None:
    """One member of the shape is a number of bytes, several are sizes of an array."""
    size, kind = _operand(call, shape), _operand(call, dtype)
    in_bytes = call.op == Op("relax.memory.alloc_storage")
    if in_bytes and isinstance(size, ShapeExpr) and len(size.values) == 1:
        return _bytes(size, DataType("uint8"))
    return _bytes(size, kind)


def _operand(call: Call, place: int) -> Expr | None:
    return call.args[place] if place < len(call.args) else None


def _bytes(shape: Expr | None, dtype: Expr | DataType | None) -> int | None:
    kind = dtype.value if isinstance(dtype, DataTypeImm) else dtype
    if not isinstance(shape, ShapeExpr) or not isinstance(kind, DataType):
        return None
    if kind.is_void or kind.is_scalable:
        return None
    sizes = [size.value for size in shape.values if isinstance(size, IntImm)]
    return prod(sizes) * kind.itemsize if len(sizes) == len(shape.values) else None
