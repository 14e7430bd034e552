"""Whose memory the values of a Relax function are, and where it is used.

Fields of tuples, other names, casts and operands that a kernel writes in place have the memory of
what they come from. So a lifetime is that of memory, whatever the variables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from operator import itemgetter

from typing_extensions import override

from relaxpy.exec.program.lower.known import allocation_of, is_release, is_reshape
from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.program.lower.storages import is_inside, size_of_storage
from relaxpy.exec.program.memory import Memory, Place
from relaxpy.ir.core.traverse import leaves
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation, CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.regions import filled_buffers
from relaxpy.support.dataclass import dataclass

_KERNEL_CALLS = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.DYNAMIC_KERNEL)


@dataclass(frozen=True, slots=True, eq=False)
class _Storage:
    """Storage of `size` bytes, the sequence that allocates it, and when which tensors in it are."""

    size: tir.PrimExpr
    sequence: rx.SeqExpr | None
    tensors: list[tuple[int, Memory]]


class Places:
    """The places of the values of `func` and of the functions in it, and the uses of memory.

    Kernels read and write their operands. Whatever else uses memory keeps it: it may refer to it
    from then on, return it or change it. `kernel_of` finds the kernels of the module. Without
    `shares`, no memory is free.
    """

    def __init__(
        self,
        func: rx.Function,
        kernel_of: Callable[[rx.Expr], GlobalCallee | None],
        *,
        shares: bool = True,
    ) -> None:
        self._kernel_of, self._shares = kernel_of, shares
        self._places: dict[rx.Expr, Place] = {}
        self._now = 0
        self._inside: tuple[rx.If, ...] = ()
        self._bound: dict[rx.Call, tuple[int, tuple[rx.If, ...], Place] | None] = {}
        """The position and the place of each call that is the value of one binding, and the
        branches in whose first arm it is."""
        self._second_arms: dict[rx.If, range] = {}
        self._uses: dict[Memory, list[int]] = {}
        self._first: dict[Memory, tuple[GlobalCallee, Sequence[Place]] | None] = {}
        """The first use of memory, if it is by a kernel."""
        self._kept: dict[Memory, int] = {}
        """The position from which on memory is kept."""
        self._changes: list[tuple[int, Memory | None]] = []
        """The positions where a kernel writes an operand, or where any code runs."""
        self._written: set[Memory] = set()
        self._viewed: set[Memory] = set()
        self._sequence: rx.SeqExpr | None = None
        self._storages: dict[Memory, _Storage] = {}
        self._function(func)
        for storage, found in self._storages.items():
            if storage in self._kept or not all(map(self._is_in_turn, pairwise(found.tensors))):
                tensors = (memory for _, memory in found.tensors)
                self._kept.update(dict.fromkeys((storage, *tensors), 0))

    def separate(self) -> frozenset[rx.Expr]:
        """The variables of storage that need not exist (OPT-10).

        Such storage is only used for tensors that are provably inside it, in the same sequence.
        When another tensor is allocated in it, earlier ones are dead, and only kernels have used
        them; a kernel first overwrites the new one. So each tensor can have private memory.
        """
        unused = self._storages.keys() - self._kept.keys()
        return frozenset(var for var, place in self._places.items() if unused and place in unused)

    @override
    def __str__(self) -> str:
        """The place of each variable, with the positions of its uses, and that of keeping it."""
        numbers: dict[Memory, str] = {}

        def text(place: Place) -> str:
            if isinstance(place, tuple):
                return f"({', '.join(map(text, place))})"
            uses = [f"{use}" for use in self._uses.get(place, ())]
            kept = f" kept {self._kept[place]}" if place in self._kept else ""
            name = numbers.setdefault(place, f"{place.origin} {len(numbers)}")
            return " ".join([name, "used", *uses]) + kept

        variables = [(v, place) for v, place in self._places.items() if isinstance(v, rx.Var)]
        return "\n".join(f"{var.name_hint}: {text(place)}" for var, place in variables)

    def of(self, expr: rx.Expr) -> Place:
        """The place of an operand."""
        match expr:
            case rx.Tuple(fields=fields):
                return tuple(map(self.of, fields))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                return _field(self.of(whole), index)
            case _:
                return self._places.get(expr, ())

    def is_kept(self, expr: rx.Expr) -> bool:
        """True if something else than kernels may use the memory of a value."""
        return not self._kept.keys().isdisjoint(leaves(self.of(expr)))

    def is_only_read(self, literal: rx.Constant) -> bool:
        """True if only kernels use a literal, and none writes it.

        It is a new tensor at each evaluation (EV-2); then one serves all evaluations.
        """
        place = self.of(literal)
        return place in self._uses and place not in self._written and place not in self._kept

    def is_free(self, place: Place, call: rx.Call) -> bool:
        """True if the place of an operand of a call is new memory that nothing uses after it."""
        bound = self._bound.get(call)
        if not isinstance(place, Memory) or place.origin != "new" or bound is None:
            return False
        position, inside, _ = bound
        later = [use for use in self._uses[place] if use > position]
        elsewhere = [self._second_arms[branch] for branch in inside if later]
        is_last = all(any(use in arm for arm in elsewhere) for use in later)
        return self._shares and is_last and self._is_private(place, position)

    def share(self, source: Place, call: rx.Call) -> bool:
        """Let the result of a call, a copy of an operand, have the place of the operand.

        The result is True if that is right: kernels alone read the copy, and the operand is not
        changed meanwhile. The memory is then not free afterwards.
        """
        start, _, target = self._bound.get(call) or (0, (), ())
        if not self._shares or not isinstance(source, Memory) or not isinstance(target, Memory):
            return False
        if target in self._kept or target in self._written:
            return False
        positions = start, self._uses.get(target, [0])[-1]
        first, last = (bisect_right(self._changes, p, key=itemgetter(0)) for p in positions)
        for position, memory in self._changes[first:last]:
            if memory is None or memory is source or not self._is_private(memory, position):
                return False
        self._viewed |= {source, target}
        return True

    def are_new(self, outputs: Sequence[rx.Expr], inputs: Sequence[rx.Expr], call: rx.Call) -> bool:
        """True if `outputs` of a call have new memory each, which no other operand has."""
        new = [self.of(output) for output in outputs]
        position, *_ = self._bound.get(call) or (inf,)
        used = {*leaves(tuple(map(self.of, inputs)))}
        is_new = all(isinstance(m, Memory) and self._is_private(m, position) for m in new)
        return is_new and len(set(new)) == len(new) and used.isdisjoint(new)

    def _is_private(self, memory: Memory, position: float) -> bool:
        """True if only kernels have used memory until a position, as that of one tensor."""
        is_kept = self._kept.get(memory, inf) <= position
        return memory.origin == "new" and not is_kept and memory not in self._viewed

    # ---- bindings

    def _function(self, func: rx.Function) -> None:
        self._places.update((param, Memory("parameter")) for param in func.params)
        self._keep(self._value(func.body))

    def _body(self, seq: rx.SeqExpr) -> Place:
        """The result of a sequence."""
        outer, self._sequence = self._sequence, seq
        for block in seq.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, rx.Function) and binding.var is not None:
                    self._places[binding.var] = Memory("function")
                place = self._bind(binding.value)
                if binding.var is not None:
                    self._places.setdefault(binding.var, place)
        self._sequence = outer
        return self._bind(seq.body)

    def _bind(self, value: rx.Expr | Op) -> Place:
        """The place of a value at a new position."""
        self._now += 1
        position, inside = self._now, self._inside
        place = self._value(value)
        if isinstance(value, rx.Call):
            is_first = value not in self._bound
            self._bound[value] = (position, inside, place) if is_first else None
        return place

    # ---- values

    def _value(self, expr: rx.Expr | Op) -> Place:
        """The place of a value, whose uses of memory are noted."""
        match expr:
            case rx.Var():
                place = self._places.get(expr, ())
                if isinstance(place, Memory) and place.origin in ("function", "storage"):
                    self._keep(place)
                return place
            case rx.Constant():
                return self._places.setdefault(expr, Memory("constant"))
            case rx.Tuple(fields=fields):
                return tuple(map(self._value, fields))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                return _field(self._value(whole), index)
            case rx.SeqExpr():
                return self._body(expr)
            case rx.If(cond=cond, true_branch=first, false_branch=second):
                self._use(self._value(cond))
                self._changes.append((self._now, None))
                outer, self._inside = self._inside, (*self._inside, expr)
                self._keep(self._value(first))
                self._inside, start = outer, self._now + 1
                self._keep(self._value(second))
                self._second_arms[expr] = range(start, self._now + 1)
                return Memory("foreign")
            case rx.Function():
                captured = (self._places.get(var) for var in free_vars(expr))
                self._keep(tuple(p for p in captured if p is not None and not _is_function(p)))
                self._function(expr)
                return ()
            case rx.Call():
                return self._call(expr)
            case _:
                return ()

    def _call(self, call: rx.Call) -> Place:
        match call:
            case rx.Call(op=rx.GlobalVar() as name, args=args) if callee := self._kernel_of(name):
                self._kernel(callee, tuple(map(self._value, args)))
                return ()
            case rx.Call(op=Op() as op, args=[name, packed, *others]) if (
                op.record.calls in _KERNEL_CALLS and (callee := self._kernel_of(name))
            ):
                operands, *_ = map(self._value, (packed, *others))
                self._kernel(callee, operands)
                return self._results(call, operands)
            case rx.Call(args=args) if is_reshape(call):
                self._use(tuple(map(self._value, args)))
                return Memory("new")
            case _ if is_release(call):
                return ()
            case _ if (allocation := allocation_of(call)) is not None:
                return self._allocate(call, allocation)
            case rx.Call(op=op, args=args):
                is_local = isinstance(op, rx.Var) and _is_function(self._places.get(op))
                self._keep(tuple(map(self._value, args if is_local else (op, *args))))
                self._changes.append((self._now, None))
                return Memory("foreign")

    def _kernel(self, callee: GlobalCallee, operands: Place) -> None:
        """Note the uses of memory by a kernel; functions that it calls may keep its operands."""
        assert callee.kernel is not None
        if not isinstance(operands, tuple) or callee.kernel.calls_functions:
            self._keep(operands)
            self._changes.append((self._now, None))
            return
        self._use(operands, (callee, operands))
        for index in callee.written:
            for memory in leaves(_field(operands, index)):
                self._written.add(memory)
                self._changes.append((self._now, memory))

    def _results(self, call: rx.Call, operands: Place) -> Place:
        """The outputs of a kernel, which are new or operands in place."""
        [sinfo] = call.sinfo_args or (rx.TupleStructInfo(()),)
        is_tuple = isinstance(sinfo, rx.TupleStructInfo)
        outputs = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
        inplace = call.attrs.get("inplace_indices", (-1,) * len(outputs))
        assert isinstance(inplace, tuple)
        results = tuple(Memory("new") if i < 0 else _field(operands, i) for i in inplace)
        return results if is_tuple else results[0]

    def _allocate(self, call: rx.Call, allocation: Allocation) -> Memory:
        if allocation.storage:
            storage, size = Memory("storage"), size_of_storage(call, allocation)
            if size is not None:
                self._storages[storage] = _Storage(size, self._sequence, [])
            return storage
        memory = Memory("new")
        if allocation.planned:
            place = self.of(call.args[0])
            found = self._storages.get(place) if isinstance(place, Memory) else None
            is_here = found is not None and found.sequence is self._sequence
            if found is not None and is_here and is_inside(call, allocation, found.size):
                found.tensors.append((self._now, memory))
            else:
                self._keep((self._value(call.args[0]), memory))
        return memory

    def _is_in_turn(self, pair: tuple[tuple[int, Memory], tuple[int, Memory]]) -> bool:
        """True if a tensor is dead before the next one in its storage, which a kernel fills."""
        (_, before), (position, tensor) = pair
        if before in self._kept or self._uses.get(before, [0])[-1] >= position:
            return False
        first = self._first.get(tensor)
        if first is None:
            return tensor not in self._first
        callee, operands = first
        assert callee.prim_func is not None
        written = [index for index, operand in enumerate(operands) if operand is tensor]
        buffers, filled = callee.prim_func.buffer_map_items, filled_buffers(callee.prim_func.body)
        return len(written) == 1 and buffers[written[0]] in set(filled)

    # ---- uses

    def _use(
        self, place: Place, kernel: tuple[GlobalCallee, Sequence[Place]] | None = None
    ) -> None:
        for memory in leaves(place):
            self._uses.setdefault(memory, []).append(self._now)
            self._first.setdefault(memory, kernel)

    def _keep(self, place: Place) -> None:
        self._use(place)
        for memory in leaves(place):
            self._kept.setdefault(memory, self._now)


def _field(place: Place, index: int) -> Place:
    """The place of a field; the tuple may be a parameter or foreign."""
    if isinstance(place, Memory):
        return place
    return place[index] if index < len(place) else ()


def _is_function(place: Place | None) -> bool:
    return isinstance(place, Memory) and place.origin == "function"
