"""The lifetimes of the values of a function, and which of them only kernels use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, chain
from math import inf
from typing import TypeAlias

from relaxpy.exec.lower.known import DECLARED, allocation_of, is_reshape
from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.lower.storages import separate_storages
from relaxpy.exec.runtime.operators import released
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import binding_vars, free_vars, occurring_vars
from relaxpy.support.dataclass import dataclass

KernelOf: TypeAlias = Callable[[rx.Expr], GlobalCallee | None]
Key: TypeAlias = "rx.Expr | tuple[rx.Var, int]"
"""A value: that of a variable, one of several results of a variable's call, or a literal."""
_LEAVES = (rx.Var, rx.Constant, rx.ShapeExpr, rx.PrimValue)
_KERNELS = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.DYNAMIC_KERNEL)


def is_release(value: rx.Expr | Op) -> bool:
    """True if a call only marks a value as dead, which Python's reference counts do."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    return value.op.record.runtime is released


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A position after a binding of a sequence, or after its result.

    Fields:
        ending: the values that the binding or the result is the last to use.
        keeps_operand: only kernels read the result of the binding, and its operand is unchanged
            until they have run, so that both may have the same memory.
    """

    ending: Mapping[Key, None] = field(default_factory=dict)
    keeps_operand: bool = False


class Lifetimes:
    """The lifetimes of the values of `func`, and of the functions in it.

    A value lives in the sequence that binds it, and forever if an inner function captures it.

    Fields:
        observed: the values that others than kernels use, which may keep, return or change them.
        separate: the variables of storage that need not exist (`separate_storages`).
        tensors: the number of allocations of tensors in each storage.
    """

    def __init__(self, func: rx.Function, kernel_of: KernelOf) -> None:
        self.observed: set[Key] = set()
        self.separate: set[rx.Expr] = set()
        self.tensors: Counter[Key] = Counter()
        self._kernel_of = kernel_of
        self._keys: dict[rx.Var, Sequence[Key]] = {}
        self._aliases: set[rx.Binding] = set()
        self._kernels: dict[rx.Expr, tuple[GlobalCallee, Sequence[Key]]] = {}
        self._read: set[Key] = set()
        self._written: set[Key] = set()
        self._captured: set[Key] = set()
        self._storages: dict[Key, Key] = {}
        """The storage of each tensor that is allocated, or the tensor itself."""
        self._checked: dict[rx.Expr, Sequence[rx.StructInfo]] = {}
        """The struct info that the result of a function's body is compared with."""
        self._points: dict[rx.SeqExpr, Sequence[Point]] = {}
        self._first: dict[Key, rx.Expr] = {}
        self._last: dict[Key, int] = {}
        nodes = [*walk(func)]
        for node in nodes:
            if isinstance(node, rx.VarBinding):
                self._bind(node)
            elif isinstance(node, rx.MatchCast) and node.var is not None:
                self._keys[node.var] = (node.var,)
        for node in nodes:
            self._classify(node)
            if isinstance(node, rx.Function) and node is not func:
                self._captured.update(
                    key for var in free_vars(node) for key in self._keys.get(var, ())
                )
        self.observed |= self._captured
        for node in nodes:
            if isinstance(node, rx.SeqExpr):
                self._sequence(node)

    def points(self, seq: rx.SeqExpr) -> Sequence[Point]:
        """The positions after each binding of a sequence, and after its result."""
        return self._points[seq]

    def keys(self, var: rx.Var) -> Sequence[Key]:
        """The value of a variable, or those of a tuple of the results of a call."""
        return self._keys.get(var) or (var,)

    def is_only_read(self, literal: rx.Constant) -> bool:
        """True if only kernels use a literal, and none of them writes it.

        It is a new tensor at each evaluation (EV-2); then one serves all evaluations.
        """
        return literal in self._read and not self._is_changed(literal)

    def first_use(self, var: rx.Var) -> rx.Expr | None:
        """The value of the binding that first uses a variable, in the sequence that binds it."""
        return self._first.get(var)

    def last_use(self, var: rx.Var) -> float:
        """The position of a variable's last use in its sequence, infinite if it is observed."""
        return inf if var in self.observed else self._last[var]

    def kernel(self, call: rx.Expr) -> tuple[GlobalCallee | None, Sequence[Key]]:
        """The kernel of the module that a call runs, if any, and its operands."""
        return self._kernels.get(call, (None, ()))

    # ---- uses

    def _bind(self, binding: rx.VarBinding) -> None:
        """Note the values of a variable, which is an alias if they are those of others."""
        match binding.value:
            case rx.Var() as other if other in self._keys:
                self._keys[binding.var] = self._keys[other]
                self._aliases.add(binding)
            case rx.TupleGetItem() as item if self._leaves(item):
                self._keys[binding.var] = self._leaves(item)
                self._aliases.add(binding)
            case rx.Function():
                return
            case value:
                keys = [(binding.var, number) for number in range(_results(value))]
                self._keys[binding.var] = keys or (binding.var,)
                if isinstance(value, rx.Call) and (allocation := allocation_of(value)) is not None:
                    storages = self._leaves(value.args[0]) if allocation.planned else ()
                    self._storages[binding.var] = storages[0] if storages else binding.var

    def _leaves(self, expr: Node) -> Sequence[Key]:
        """The values in an operand."""
        match expr:
            case rx.Var():
                return self.keys(expr)
            case rx.Constant():
                return (expr,)
            case rx.Tuple(fields=fields):
                return [*chain.from_iterable(map(self._leaves, fields))]
            case rx.TupleGetItem(tuple_value=rx.Var() as whole, index=index):
                keys = self.keys(whole)
                return keys[index : index + 1] if isinstance(keys[0], tuple) else ()
            case _:
                return ()

    def _classify(self, node: Node) -> None:
        """Note the values that a node observes, or that its kernel reads or writes."""
        observed: Sequence[Node] = ()
        match node:
            case rx.Tuple() | rx.TupleGetItem():  # what uses it observes its values
                return
            case rx.VarBinding() if node in self._aliases:
                return
            case rx.VarBinding(value=value) | rx.MatchCast(value=value):
                observed = (value,)
            case rx.Function(ret_struct_info=sinfo):
                if sinfo is not None:
                    self._checked[node.body] = (sinfo,)
                return
            case rx.Call(args=args):
                if is_release(node):
                    return
                observed = args[self._called(node) :]
            case _:
                observed = [*children(node)]
        self.observed.update(chain.from_iterable(map(self._leaves, observed)))

    def _called(self, call: rx.Call) -> int:
        """The number of first arguments that a call does not observe, whose uses are noted."""
        match call:
            case rx.Call(op=rx.GlobalVar() as name, args=operands):
                if (callee := self._kernel_of(name)) is not None:
                    self._kernel(call, callee, operands)
                    return len(operands)
            case rx.Call(op=Op() as op, args=[name, packed, *_]) if op.record.calls in _KERNELS:
                if (callee := self._kernel_of(name)) is not None:
                    self._kernel(call, callee, getattr(packed, "fields", (packed,)))
                    return 2
        if is_reshape(call):
            self._read.update(self._leaves(call.args[0]))
            return 1
        allocation = allocation_of(call)
        is_planned = allocation is not None and allocation.planned
        self.tensors.update(self._leaves(call.args[0]) if is_planned else ())
        return is_planned

    def _kernel(self, call: rx.Call, callee: GlobalCallee, operands: Sequence[rx.Expr]) -> None:
        keys = [key for operand in operands for key in self._leaves(operand) or (operand,)]
        self._kernels[call] = callee, keys
        in_place = call.attrs.get("inplace_indices", ())
        for number, key in enumerate(keys):
            is_written = number in callee.written or number in in_place
            if not self._is_closed(callee) or (in_place and is_written):
                self.observed.add(key)  # the result may be the operand itself
            else:
                (self._written if is_written else self._read).add(key)

    @staticmethod
    def _is_closed(callee: GlobalCallee) -> bool:
        """True if a kernel calls no functions."""
        return callee.kernel is not None and callee.kernel.unchecked is not None

    # ---- sequences

    def _sequence(self, seq: rx.SeqExpr) -> None:
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        last: dict[Key, int] = {}
        for index, binding in enumerate(bindings):
            if binding not in self._aliases:
                if not is_release(binding.value):
                    self._use(binding_vars(binding), binding.value, index, last)
                if binding.var is not None:
                    last.update(dict.fromkeys(self.keys(binding.var), index))
        for node in (seq.body, *self._checked.get(seq, ())):
            self._use(occurring_vars(node), seq.body, len(bindings), last)
        self._last |= last
        self.separate |= separate_storages(bindings, self)
        ending: list[dict[Key, None]] = [{} for _ in range(len(bindings) + 1)]
        for key, index in last.items():
            if key not in self._captured:
                ending[index][key] = None
        keeping = self._keeping(bindings, last)
        self._points[seq] = [Point(keys, index in keeping) for index, keys in enumerate(ending)]

    def _use(self, used: Iterable[rx.Var], user: rx.Expr, index: int, last: dict[Key, int]) -> None:
        for var in used:
            for key in self.keys(var):
                if key in last:
                    last[key] = index
                    self._first.setdefault(key, user)

    def _keeping(self, bindings: Sequence[rx.Binding], last: Mapping[Key, int]) -> set[int]:
        """The bindings whose result may share the memory of their operand."""
        effects = [self._effect(binding) for binding in bindings]
        others = [*accumulate(effect is None for effect in effects)]
        written = {key: index for index, effect in enumerate(effects) for key in effect or ()}
        keeping: set[int] = set()
        for index, binding in enumerate(bindings):
            result, operand = binding.var, self._only_operand(binding.value)
            if result is None or operand is None or self._is_changed(result):
                continue
            if others[last[result]] == others[index] and written.get(operand, -1) <= index:
                keeping.add(index)
        return keeping

    def _is_changed(self, key: Key) -> bool:
        """True if something else than kernels uses a value, or a kernel writes it."""
        return key in self.observed or key in self._written

    def _only_operand(self, value: rx.Expr) -> Key | None:
        """The operand of a kernel or of a reshape that have one."""
        keys: Sequence[Key] = ()
        if value in self._kernels and not _results(value):
            _, keys = self._kernels[value]
        elif is_reshape(value):
            keys = self._leaves(value.args[0])
        return keys[0] if len(keys) == 1 else None

    def _effect(self, binding: rx.Binding) -> Sequence[Key] | None:
        """The values that the kernel of a binding writes; None if it may run other code."""
        value = binding.value
        if isinstance(binding, rx.MatchCast):
            return None
        if isinstance(value, rx.Call) and value in self._kernels:
            callee, keys = self._kernels[value]
            written = [key for number, key in enumerate(keys) if number in callee.written]
            is_plain = self._is_closed(callee) and "inplace_indices" not in value.attrs
            return written if is_plain and all(map(self._is_private, written)) else None
        is_known = binding in self._aliases or isinstance(value, _LEAVES) or is_release(value)
        return () if is_known or is_reshape(value) or allocation_of(value) is not None else None

    def _is_private(self, key: Key) -> bool:
        """True if a tensor was allocated with memory of its own."""
        storage = self._storages.get(key)
        return storage is not None and (storage is key or storage in self.separate)


def _results(value: rx.Expr) -> int:
    """The number of results of a call that stores them in tensors, if it returns a tuple."""
    match value:
        case rx.Call(op=Op() as op, sinfo_args=[rx.TupleStructInfo(fields=fields), *_]):
            return len(fields) if op.record.calls in DECLARED else 0
        case _:
            return 0
