"""Which allocated tensors of a sequence can share storage, and when they are used last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.effects import memory_of
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    GlobalVar,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    is_call_of,
)
from relaxpy.ir.relax.transform.lowering.storage import ALLOC_TENSOR
from relaxpy.ir.tir.prim_func.function import PrimFunc

Tensors: TypeAlias = "frozenset[Var] | tuple[Tensors, ...]"
"""The allocations whose memory a value may refer to; a tuple has those of each field."""

_NONE: Tensors = frozenset()


class Lifetimes:
    """The allocations of a sequence that only kernels, packed functions and views use.

    Fields:
        calls   the allocation of each such tensor, in order
        kept    those that a packed function has had, and could keep
        ending  by the binding after which tensors are not used any more: these tensors
    """

    def __init__(self, seq: SeqExpr, mod: IRModule, kept: Iterable[Var] = ()) -> None:
        self._mod = mod
        self._of: dict[Var, Tensors] = {}
        self._block_of: dict[Var, BindingBlock] = {}
        self._last: dict[Var, Binding] = {}
        self.calls: dict[Var, Call] = {}
        self.kept: set[Var] = set()
        for block in seq.blocks:
            for binding in block.bindings:
                self._visit(binding, block)
        self._returned(seq.body, set(kept))
        self.ending: dict[Binding, list[Var]] = {}
        for var in self.calls:
            if var not in self.kept:
                self.ending.setdefault(self._last[var], []).append(var)

    def _visit(self, binding: Binding, block: BindingBlock) -> None:
        value, var = binding.value, binding.var
        if var is not None and _is_allocation(value) and not isinstance(block, DataflowBlock):
            assert isinstance(value, Call)
            self.calls[var] = value
            self._block_of[var] = block
            self._last[var] = binding
            self._of[var] = frozenset((var,))
            return
        used = [v for v in occurring_vars(value) if v in self._of]
        if not used:
            return
        tensors = {t for v in used for t in _flat(self._of[v])}
        if self._shares(value):
            self._use(tensors, binding, block)
        else:
            self._discard(tensors)
        if isinstance(value, Call) and isinstance(value.op, ExternFunc):
            self.kept |= tensors
        if var is not None:
            self._of[var] = self._value(value)

    def _shares(self, value: Expr) -> bool:
        """Whether a value uses tensors only as arguments of kernels, views or fields."""
        if not isinstance(value, Call):
            return isinstance(value, (Var, Tuple, TupleGetItem))
        if is_call_of(value, "relax.vm.call_tir_dyn"):
            return self._is_kernel(value.args[0])
        if _is_view(value) or (isinstance(value.op, Op) and value.op.record.releases):
            return True
        return isinstance(value.op, ExternFunc) or self._is_kernel(value.op)

    def _is_kernel(self, callee: object) -> bool:
        if not isinstance(callee, GlobalVar):
            return False
        return isinstance(self._mod.functions_by_name.get(callee.name_hint), PrimFunc)

    def _use(self, tensors: Iterable[Var], binding: Binding, block: BindingBlock) -> None:
        for var in tensors:
            if self._block_of[var] is block:
                self._last[var] = binding
            else:
                self._discard((var,))

    def _discard(self, tensors: Iterable[Var]) -> None:
        for var in tensors:
            self.calls.pop(var, None)

    def _returned(self, body: Expr, kept: set[Var]) -> None:
        """Keep or discard the tensors in the result of the sequence."""
        for used in occurring_vars(body):
            for var in _flat(self._of.get(used, _NONE)):
                self.kept.add(var)
                if var not in kept:
                    self._discard((var,))

    def _value(self, value: Expr) -> Tensors:
        """What the value of a binding refers to."""
        match value:
            case Var():
                return self._of.get(value, _NONE)
            case Tuple(fields=fields):
                return tuple(map(self._value, fields))
            case TupleGetItem(tuple_value=tuple_value, index=index):
                tensors = self._value(tuple_value)
                return tensors[index] if isinstance(tensors, tuple) else tensors
            case Call() if _is_view(value):
                return self._value(value.args[0])
            case _:
                return _NONE


def _is_view(call: Call) -> bool:
    """Whether the result of a call may lie in the memory of its first operand."""
    memory = memory_of(call)
    return memory is not None and memory.is_of_operand


def _is_allocation(value: Expr) -> bool:
    return is_call_of(value, ALLOC_TENSOR) and isinstance(value.args[0], ShapeExpr)


def _flat(tensors: Tensors) -> set[Var]:
    if isinstance(tensors, frozenset):
        return set(tensors)
    return {var for field in tensors for var in _flat(field)}
