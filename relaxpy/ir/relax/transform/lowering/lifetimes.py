"""Which allocated tensors of a sequence can share storage, and when they are used last."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.aliases import Aliases
from relaxpy.ir.relax.analysis.effects import memory_of
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.transform.lowering.storage import ALLOC_TENSOR
from relaxpy.ir.tir.prim_func.function import PrimFunc


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
        """Whether a value uses tensors only as arguments of kernels, views or fields."""
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
    """Whether the result of a call may lie in the memory of its first operand."""
    memory = memory_of(call)
    return memory is not None and memory.is_of_operand


def _is_allocation(value: rx.Expr) -> bool:
    return rx.is_call_of(value, ALLOC_TENSOR) and isinstance(value.args[0], rx.ShapeExpr)
