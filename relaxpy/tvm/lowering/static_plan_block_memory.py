"""StaticPlanBlockMemory: tensors whose lifetimes do not overlap get the same storage."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import memory_of
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import Call, DataTypeImm, Var
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.transform.append_in_place import SizeBounds
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.tvm.lowering.storage import ALLOC_TENSOR, byte_count, storage_call, tensor_call
from relaxpy.tvm.relax.aliases import Aliases


@dataclass(frozen=True)
class StaticPlanBlockMemory(RewritePass):
    """Puts tensors that are allocated explicitly into storage, which later tensors use again.

    A tensor is planned if only kernels, packed functions and reshapes of its binding block use it.
    Its storage is free after its last use, unless a packed function has had the tensor and could
    keep it. Sizes may be symbolic; the attribute `tir_var_upper_bound` of a function, a mapping
    from the names of shape variables to integers, makes them constants. Results of the function
    keep their own allocation; with the attribute `relax.memory_plan_dynamic_func_output`, which
    is removed, those whose size has a bound get storage, which is not used again.

    Errors:
        TransformError: an attribute with bounds is not a mapping from names to integers.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Planner(mod).expr(func)


_PLANS_OUTPUT = "relax.memory_plan_dynamic_func_output"


class _Planner(BindingRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self._mod = mod
        self._bounds = SizeBounds()
        self._body: rx.SeqExpr | None = None

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self._bounds, self._body
        plans_output = func.attrs.get(_PLANS_OUTPUT, False)
        self._bounds, self._body = SizeBounds.of(func), func.body if plans_output else None
        after = super().function(func)
        self._bounds, self._body = outer
        return after.without_attr(_PLANS_OUTPUT) if _PLANS_OUTPUT in after.attrs else after

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        is_body = seq is self._body
        seq = super().sequence(seq)
        lifetimes = Lifetimes(seq, self._mod, self._bounded(seq) if is_body else ())
        if not lifetimes.calls:
            return seq
        pool = StoragePool()
        for block in seq.blocks:
            for binding in block.bindings:
                call = lifetimes.calls.get(binding.var)  # type: ignore[arg-type]
                if call is not None and binding.var is not None:
                    pool.allocate(binding.var, call, self._size(call))
                for var in lifetimes.ending.get(binding, ()):
                    pool.release(var)
        blocks = tuple(_in_storage(block, pool) for block in seq.blocks)
        return rebuild(seq, blocks=blocks)

    def _size(self, call: rx.Call) -> tir.PrimExpr:
        """The size of an allocation in bytes."""
        shape, dtype = call.args[:2]
        assert isinstance(shape, rx.ShapeExpr)
        assert isinstance(dtype, rx.DataTypeImm)
        return self._bounds.largest(byte_count(shape, dtype.value))

    def _bounded(self, seq: rx.SeqExpr) -> Iterator[rx.Var]:
        """The tensors of symbolic shapes whose size has a constant bound."""
        for block in seq.blocks:
            for binding in block.bindings:
                call = binding.value
                if not rx.is_call_of(call, ALLOC_TENSOR):
                    continue
                shape = call.args[0]
                if not isinstance(shape, rx.ShapeExpr) or binding.var is None:
                    continue
                if all(isinstance(dim, tir.IntImm) for dim in shape.values):
                    continue
                if isinstance(self._size(call), tir.IntImm):
                    yield binding.var


def _in_storage(block: rx.BindingBlock, pool: StoragePool) -> rx.BindingBlock:
    """The block with its tensors in storage, which is allocated with its first tensor."""
    bindings: list[rx.Binding] = []
    for binding in block.bindings:
        var, call = binding.var, binding.value
        storage = None if var is None else pool.storage_of.get(var)
        if storage is None:
            bindings.append(binding)
            continue
        assert isinstance(call, rx.Call)
        if storage.first is var:
            value = storage_call(call, storage.size, storage.dtype)
            bindings.append(rx.VarBinding(storage.var, value, binding.span))
        bindings.append(replace(binding, value=tensor_call(call, storage.var)))
    return with_bindings(block, bindings)


Kind: TypeAlias = tuple[str, ...]
"""The datatype, the device and the storage scope of a tensor, as text."""

_MATCH_RANGE = 16
"""The largest ratio between the sizes of tensors that share a storage."""
_SYMBOLIC = 16
"""The number of free storages of symbolic size that are compared."""


@dataclass(slots=True, eq=False)
class Storage:
    """Memory of `size` bytes, which is allocated for its `first` tensor."""

    var: Var
    first: Var
    size: tir.PrimExpr
    dtype: DataType
    kind: Kind


class StoragePool:
    """Assigns storage to the tensors of a block in the order in which they are allocated."""

    def __init__(self) -> None:
        self.storage_of: dict[Var, Storage] = {}
        self._free: dict[Kind, list[tuple[int, int, Storage]]] = {}
        self._symbolic: dict[Kind, deque[Storage]] = {}
        self._released = 0

    def allocate(self, tensor: Var, call: Call, size: tir.PrimExpr) -> None:
        """Assign storage of at least `size` bytes to the tensor of an allocation."""
        dtype = call.args[1]
        assert isinstance(dtype, DataTypeImm)
        kind = tuple(map(str, call.args[1:4]))
        storage = (
            self._fixed(kind, size) if isinstance(size, tir.IntImm) else self._equal(kind, size)
        )
        if storage is None:
            storage = Storage(Var("storage", span=tensor.span), tensor, size, dtype.value, kind)
        self.storage_of[tensor] = storage

    def release(self, tensor: Var) -> None:
        """Let other tensors have the storage of a tensor."""
        storage = self.storage_of[tensor]
        if isinstance(storage.size, tir.IntImm):
            self._released += 1
            free = self._free.setdefault(storage.kind, [])
            insort(free, (storage.size.value, self._released, storage))
        else:
            self._symbolic.setdefault(storage.kind, deque(maxlen=_SYMBOLIC)).append(storage)

    def _fixed(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """The smallest free storage that is large enough, or the largest one, which then grows."""
        assert isinstance(size, tir.IntImm)
        free = self._free.get(kind, [])
        index = bisect_left(free, (size.value,))
        if index < len(free) and free[index][0] <= size.value * _MATCH_RANGE:
            return free.pop(index)[2]
        if index and free[index - 1][0] * _MATCH_RANGE >= size.value:
            storage = free.pop(index - 1)[2]
            storage.size = size
            return storage
        return None

    def _equal(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """A free storage of the same symbolic size."""
        free = self._symbolic.get(kind, deque())
        for storage in free:
            if prove_equal(storage.size, size) is True:
                free.remove(storage)
                return storage
        return None


class Lifetimes:
    """The allocations of a sequence that only kernels, packed functions and views use.

    Fields:
        calls   the allocation of each such tensor, in order
        kept    those that a packed function has had, and could keep
        ending  by the binding after which tensors are not used any more: these tensors
    """

    def __init__(self, seq: rx.SeqExpr, mod: IRModule, kept: Iterable[rx.Var] = ()) -> None:
        self._mod = mod
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        self._aliases = Aliases(bindings, follows_calls=False)
        self._owner: dict[int, rx.Var] = {}
        self._block_of: dict[rx.Var, rx.BindingBlock] = {}
        self._last: dict[rx.Var, rx.Binding] = {}
        self.calls: dict[rx.Var, rx.Call] = {}
        self.kept: set[rx.Var] = set()
        for block in seq.blocks:
            for binding in block.bindings:
                self._visit(binding, block)
        self._returned(seq.body, set(kept))
        self.ending: dict[rx.Binding, list[rx.Var]] = {}
        for var in self.calls:
            if var not in self.kept:
                self.ending.setdefault(self._last[var], []).append(var)

    def _visit(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        value, var = binding.value, binding.var
        if var is not None and _is_allocation(value) and not isinstance(block, rx.DataflowBlock):
            assert isinstance(value, rx.Call)
            self.calls[var] = value
            self._block_of[var] = block
            self._last[var] = binding
            self._owner.update(dict.fromkeys(self._aliases.of[var], var))
            return
        tensors = self._tensors(value)
        if not tensors:
            return
        if self._shares(value):
            self._use(tensors, binding, block)
        else:
            self._discard(tensors)
        if isinstance(value, rx.Call) and isinstance(value.op, rx.ExternFunc):
            self.kept |= tensors

    def _tensors(self, value: rx.Expr) -> set[rx.Var]:
        """The allocations so far to whose memory the variables in a value may refer."""
        numbers = self._aliases.reachable_from(occurring_vars(value))
        return {self._owner[number] for number in numbers if number in self._owner}

    def _shares(self, value: rx.Expr) -> bool:
        """Return whether a value uses tensors only as arguments of kernels, views or fields."""
        if not isinstance(value, rx.Call):
            return isinstance(value, (rx.Var, rx.Tuple, rx.TupleGetItem))
        if rx.is_call_of(value, "relax.vm.call_tir_dyn"):
            return self._is_kernel(value.args[0])
        if _is_view(value) or (isinstance(value.op, Op) and value.op.record.releases):
            return True
        return isinstance(value.op, rx.ExternFunc) or self._is_kernel(value.op)

    def _is_kernel(self, callee: object) -> bool:
        if not isinstance(callee, rx.GlobalVar):
            return False
        return isinstance(self._mod.functions_by_name.get(callee.name_hint), PrimFunc)

    def _use(self, tensors: Iterable[rx.Var], binding: rx.Binding, block: rx.BindingBlock) -> None:
        for var in tensors:
            if self._block_of[var] is block:
                self._last[var] = binding
            else:
                self._discard((var,))

    def _discard(self, tensors: Iterable[rx.Var]) -> None:
        for var in tensors:
            self.calls.pop(var, None)

    def _returned(self, body: rx.Expr, kept: set[rx.Var]) -> None:
        """Keep or discard the tensors in the result of the sequence."""
        returned = self._tensors(body)
        self.kept |= returned
        self._discard(returned - kept)


def _is_view(call: rx.Call) -> bool:
    """Return whether the result of a call may alias its first operand."""
    memory = memory_of(call)
    return memory is not None and memory.is_of_operand


def _is_allocation(value: rx.Expr) -> bool:
    return rx.is_call_of(value, ALLOC_TENSOR) and isinstance(value.args[0], rx.ShapeExpr)
