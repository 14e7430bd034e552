"""Emits the steps of a region as a native function, and plans its memory.

Inner regions are functions that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from math import prod
from types import MappingProxyType
from typing import Protocol

from relaxpy.exec.machine.fast_paths import SHARED_MEMORY
from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Allocations, Signals
from relaxpy.exec.native.calls.interrupt import Interrupt
from relaxpy.exec.native.llvm.writer import BOOL, F64, I8, I32, I64, POINTER, VOID, Value
from relaxpy.exec.native.threads.code import INDEX, SIZE, WEIGHTS, context_word
from relaxpy.exec.native.values.expressions import Values
from relaxpy.exec.program.graph.packed_calls import RUN, emit_run
from relaxpy.exec.program.graph.program import (
    NESTING,
    Assertion,
    Branch,
    Check,
    Element,
    ExternCall,
    Filling,
    Finding,
    KernelCall,
    Loop,
    PackedStep,
    Recursion,
    RecursiveCall,
    Region,
    Step,
    Tensor,
    constants_name,
)
from relaxpy.exec.program.graph.times import Times
from relaxpy.exec.program.memory import Memory
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.support.dataclass import dataclass

_AGAIN = -1
"""The status of an iteration that is not the last."""


def conjunction(conditions: Iterable[Value]) -> Value | None:
    """True if all conditions hold; None if there is none."""
    result: Value | None = None
    for condition in conditions:
        result = (
            condition if result is None else condition.function.arithmetic("and", result, condition)
        )
    return result


def possible(frame: Values, tensors: Iterable[Tensor]) -> list[Value]:
    """The conditions that tensors have possible sizes."""
    f = frame.function
    conditions = []
    done: set[object] = set()
    for tensor in tensors:
        if tensor.shape in done or all(isinstance(dim, IntImm) for dim in tensor.shape):
            continue
        done.add(tensor.shape)
        total = f.const(F64, tensor.itemsize)
        for dim in tensor.shape:
            value = frame.index(dim)
            if not isinstance(dim, IntImm):  # a variable may be a number that a caller passes
                conditions.append(f.compare("sge", value, 0))
            total = total * f.cast("sitofp", value, "double")
        conditions.append(f.compare("olt", total, f.module.platform.most_bytes))
    return conditions


class Exported(Protocol):
    """The errors and the weights that the functions of an exported program share."""

    def number_of(self, check: Check | Assertion | RecursiveCall) -> int:
        """The number of the error of a check, or of calls that are nested too deep."""

    def extern(self, step: ExternCall) -> tuple[str, int]:
        """The symbol of a function of C, and the number of the error that it has failed."""

    def position(self, memory: Memory) -> int:
        """The position of a constant in the weights, with the mark of packed ones."""

    def largest(self, size: Var) -> tuple[PrimExpr, int]:
        """The largest value of a size that depends on data, and the number of the error."""


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    """The function of the region of a recursion, which itself calls: its parameters."""

    step: Recursion
    name: str
    variables: Sequence[Var]
    memories: Sequence[Memory]


class RegionEmitter:
    """Emits `region` in the function of `frame`, which computes sizes.

    The function returns 0, or 1 if a kernel or a check refuses the data or there is no memory. Its
    memory is `given`, for the results `outputs`, and constants are those of the graph `symbol`.
    That of an exported program has memory and a context from its caller, and `exported` the numbers
    of errors, the positions of constants, and the memory of kernels. With `times`, the function
    notes those of its steps.
    """

    def __init__(
        self,
        symbol: str,
        kernels: Mapping[KernelCall, str],
        region: Region,
        frame: Values,
        given: Mapping[Memory, Value],
        outputs: Sequence[Value],
        exported: Exported | None = None,
        times: Times | None = None,
        bodies: Mapping[Var, _Body] = MappingProxyType({}),
    ) -> None:
        self.exported, self.times = exported, times
        self.bodies = bodies
        """Those of recursions that this region is part of, by their depth."""
        self.symbol, self.kernels, self.region = symbol, kernels, region
        self.frame, self.given, self.outputs = frame, given, outputs
        self.function = frame.function
        self.plan = plan_memory(region)
        self.workspace: Value | None = None
        self.starts: list[Value] = []

    def emit(self) -> None:
        """Emit the body of the function, which first checks all sizes but those of its outputs."""
        f, frame, direct = self.function, self.frame, self.plan.direct
        checked = {tensor.shape for tensor in self.region.results}
        new = self.region.new_tensors()  # an output may be one of them in another shape
        inside = (t for t in new if t.memory not in direct or t.shape not in checked)
        f.ret(self.status([*possible(frame, inside), *self._equal_sizes()]))

    def _equal_sizes(self) -> list[Value]:
        """The conditions of the checks of sizes; exported programs number them one by one."""
        if self.exported is not None:
            return []
        f, frame, steps = self.function, self.frame, self.region.steps
        checks = [s for s in steps if isinstance(s, Check) and isinstance(s.found, PrimExpr)]
        return [f.compare("eq", frame.index(s.found), frame.index(s.expected)) for s in checks]  # type: ignore[arg-type]

    def status(self, conditions: Iterable[Value]) -> Value:
        """The status of the steps, which run if all conditions hold."""
        f, valid = self.function, conjunction(conditions)
        if valid is None:
            return self._status()
        return f.branch(valid, lambda: [self._status()], lambda: [f.const(I32, 1)])[0]

    def _status(self) -> Value:
        f = self.function
        total = f.const(I64, self.plan.fixed)
        for sizes in self.plan.slot_sizes:
            size = self.frame.index(sizes[0])
            for other in sizes[1:]:
                size = f.intrinsic("smax", size, self.frame.index(other))
            self.starts.append(total)
            total = total + f.arithmetic("and", size + (LINE_BYTES - 1), -LINE_BYTES)
        if self.exported is not None:
            assert f.memory is not None
            self.workspace, self.rest = f.memory, f.element(f.memory, total, I8)
            return self._run()
        if self.starts or self.plan.fixed > Allocations.WORKSPACE:
            return self._run_with_memory(total)
        if self.plan.offsets:  # possibly of tensors without elements
            self.workspace = f.alloca(I8, max(self.plan.fixed, 1))
        return self._run()

    def _run_with_memory(self, total: Value) -> Value:
        f = self.function
        memory = self.workspace = f.take(total)

        def run() -> list[Value]:
            status = self._run()
            f.give(memory)
            return [status]

        there = f.new(BOOL, f"icmp ne {memory}, null")
        return f.branch(there, run, lambda: [f.const(I32, 1)])[0]

    def _run(self) -> Value:
        """The status after all steps and copies."""
        f = self.function
        status = f.const(I32, 0)
        for step in self.region.steps:
            if status.name == "0":
                status = self._step(step)
            else:
                succeeded = f.compare("eq", status, 0)
                [status] = f.branch(
                    succeeded, partial(self._stepped, step), partial(list, [status])
                )
        for index, tensor in self.plan.copied:
            self._copy(self.outputs[index], tensor)
        return status

    def _copy(self, target: Value, tensor: Tensor) -> None:
        """Copy the elements of a tensor."""
        f = self.function
        size = self.frame.index(byte_count(tensor))
        name = "llvm.memcpy.p0.p0.i64"
        f.module.declare(name, VOID, ["ptr", "ptr", "i64", "i1 immarg"])
        operands = target, self._pointer(tensor.memory), size, f.const(BOOL, 0)
        f.put(f"call void @{name}({', '.join(map(str, operands))})")

    def _stepped(self, step: Step) -> list[Value]:
        return [self._step(step)]

    def _step(self, step: Step) -> Value:
        """The status after a step."""
        f = self.function
        match step:
            case KernelCall() if self.times is not None:
                run = partial(self._call, step)
                return self.times.emit(self.frame, step, self.kernels[step], run)
            case KernelCall():
                return self._call(step)
            case Filling(output=output, sizes=sizes):
                target = self._pointer(output.memory)
                for position, size in enumerate(sizes):
                    f.store(self.frame.index(size), f.element(target, position, I64))
                return f.const(I32, 0)
            case Check(found=Element(tensor=tensor, position=position)):
                found = f.load(I64, f.element(self._pointer(tensor.memory), position, I64))
                return self._compared(step, found)
            case Check(found=PrimExpr() as size) if self.exported is not None:
                return self._compared(step, self.frame.index(size))
            case Check():  # of a size, which was compared before the first step
                return f.const(I32, 0)
            case Assertion():
                return self._asserted(step)
            case Branch():
                truth = f.load(I8, self._pointer(step.condition.memory))
                ways = [partial(self._way, step, number) for number in (0, 1)]
                return f.branch(f.compare("ne", truth, 0), *ways)[0]
            case Loop():
                return self._loop(step)
            case Finding():
                return self._found(step)
            case Recursion():
                return self._recursion(step)
            case RecursiveCall():
                return self._recursive_call(step)
            case PackedStep() if self.times is not None:
                run = partial(self._packed, step)
                return self.times.emit(self.frame, step, RUN, run)
            case PackedStep():
                return self._packed(step)
            case ExternCall():
                return self._extern(step)

    def _compared(self, check: Check, found: Value) -> Value:
        """The status of a check of a size that was found."""
        f, expected = self.function, self.frame.index(check.expected)
        differs = f.compare("ne", found, expected)
        if self.exported is None:
            return f.cast("zext", differs, "i32")
        for value, word in ((found, INDEX), (expected, SIZE)):
            f.store(value, context_word(f, word))
        return f.select(differs, f.const(I32, self.exported.number_of(check)), f.const(I32, 0))

    def _asserted(self, step: Assertion) -> Value:
        """The status of a condition of the program."""
        f, condition, number = self.function, step.condition, 1
        if isinstance(condition, Tensor):
            truth = f.load(I8, self._pointer(condition.memory))
        else:
            truth = self.frame.index(condition)
        if self.exported is not None:
            number = self.exported.number_of(step)
            for value, word in zip(step.numbers, (INDEX, SIZE), strict=False):
                f.store(self.frame.index(value), context_word(f, word))
        return f.select(f.compare("ne", truth, 0), f.const(I32, 0), f.const(I32, number))

    def _call(self, call: KernelCall) -> Value:
        arguments = [
            self._pointer(a.memory) if isinstance(a, Tensor) else self.frame.index(a)
            for a in call.arguments
        ]
        arguments += [self.frame.index(size) for size in call.sizes]
        if self.exported is not None:
            arguments += self._given_memory()
        return self.function.call(self.kernels[call], I32, *arguments)

    def _given_memory(self) -> list[Value]:
        """The memory and the context that exported functions get from their caller."""
        assert self.function.context is not None
        return [self.rest, self.function.context]

    def _extern(self, step: ExternCall) -> Value:
        """The status after a call of a function of C, whose own status is the index of an error."""
        assert self.exported is not None
        f, arguments = self.function, list[Value]()
        for tensor in (*step.inputs, *step.outputs):
            shape = f.alloca(I64, max(len(tensor.shape), 1))
            for axis, size in enumerate(tensor.shape):
                f.store(self.frame.index(size), f.element(shape, axis, I64))
            arguments += [self._pointer(tensor.memory), shape]
        symbol, number = self.exported.extern(step)
        status = f.call(symbol, I32, *arguments)
        f.store(f.cast("sext", status, "i64"), context_word(f, INDEX))
        return f.select(f.compare("ne", status, 0), f.const(I32, number), f.const(I32, 0))

    def _found(self, step: Finding) -> Value:
        """The status after a region with sizes that depend on data."""
        f, found = self.function, dict[Var, Value]()
        for var, element in step.sizes.items():
            place = f.element(self._pointer(element.tensor.memory), element.position, I64)
            found[var] = f.load(I64, place)
        run = partial(self._called, step.region, step.outputs, found=found)
        return self._if_in_range(found, run)

    def _if_in_range(self, found: Mapping[Var, Value], run: Callable[[], list[Value]]) -> Value:
        """The status of `run` if sizes are not more than their largest values."""
        assert self.exported is not None
        f, status = self.function, self.function.const(I32, 0)
        for var, value in found.items():
            size, number = self.exported.largest(var)
            most = self.frame.index(size)
            for word, each in ((INDEX, value), (SIZE, most)):
                f.store(each, context_word(f, word))
            status = f.select(f.compare("ule", value, most), status, f.const(I32, number))
        if not found:
            return run()[0]
        return f.branch(f.compare("eq", status, 0), run, lambda: [status])[0]

    def _recursion(self, step: Recursion) -> Value:
        """The status of the first call of a function that calls itself."""
        pairs = zip(step.params, step.arguments, strict=True)
        places = {param.memory: self._pointer(given.memory) for param, given in pairs}
        sizes = {var: self.frame.index(size) for var, size in step.sizes.items()}
        found = {**sizes, step.depth: self.function.const(I64, step.most)}
        run = partial(self._called, step.region, step.outputs, places, found, step)
        return self._if_in_range(sizes, run)

    def _recursive_call(self, step: RecursiveCall) -> Value:
        """The status of a call in a call, which has the rest of the memory; or of an error."""
        assert self.exported is not None
        f, frame, body = self.function, self.frame, self.bodies[step.depth]
        pairs = zip(body.step.params, step.arguments, strict=True)
        given = {param.memory: argument.memory for param, argument in pairs}
        left = frame.variables[step.depth] - 1
        sizes = {var: frame.index(size) for var, size in step.sizes.items()}
        known = {**frame.variables, **sizes, step.depth: left}
        arguments = [known[var] for var in body.variables]
        arguments += [self._pointer(given.get(memory, memory)) for memory in body.memories]
        arguments += [self._pointer(output.memory) for output in step.outputs]
        arguments += self._given_memory()
        run = partial(self._if_in_range, sizes, lambda: [f.call(body.name, I32, *arguments)])
        number = self.exported.number_of(step)
        return f.branch(f.compare("ugt", left, 0), lambda: [run()], lambda: [f.const(I32, number)])[
            0
        ]

    def _packed(self, step: PackedStep) -> Value:
        f, tensors = self.function, [*step.inputs, *step.outputs]
        emit_run(f.module)
        addresses, sizes = f.alloca(POINTER, len(tensors)), f.alloca(I64, len(tensors))
        for n, tensor in enumerate(tensors):
            f.store(self._pointer(tensor.memory), f.element(addresses, n, POINTER), 8)
            f.store(self.frame.index(byte_count(tensor)), f.element(sizes, n, I64))
        session, rows = self._pointer(step.session.memory), self.frame.index(tensors[0].shape[0])
        counts = (f.const(I64, n) for n in (len(step.inputs), len(tensors)))
        number = f.const(I64, step.number)
        return f.call(RUN, I32, session, number, rows, addresses, sizes, *counts)

    def _way(self, branch: Branch, number: int) -> list[Value]:
        """The status after a region of a branch; `_AGAIN` if its loop continues."""
        f = self.function
        [status] = self._called(branch.regions[number], branch.targets[number])
        if number in branch.again:
            status = f.select(f.compare("eq", status, 0), f.const(I32, _AGAIN), status)
        return [status]

    def _loop(self, loop: Loop) -> Value:
        """The status after a loop with double-buffered states."""
        f = self.function
        for state, value in zip(loop.states, loop.initial, strict=True):
            self._copy(self._pointer(state.memory), value)
        pairs = [(a, b) for a, b in zip(loop.states, loop.following, strict=True) if b is not None]
        memories = [tensor.memory for pair in zip(*pairs, strict=True) for tensor in pair]
        interrupt = None if self.exported is not None else Interrupt(f)

        def goes_on(status: Value, *_: Value) -> Value:
            return f.compare("eq", status, _AGAIN)

        def iteration(_: Value, *places: Value) -> list[Value]:
            if interrupt is not None:
                interrupt.poll(Signals.TURNS)
            current = dict(zip(memories, places, strict=True))
            half = len(places) // 2
            return [*self._called(loop.iteration, (), current), *places[half:], *places[:half]]

        def run() -> list[Value]:
            first = [f.const(I32, _AGAIN), *map(self._pointer, memories)]
            return f.while_loop(first, goes_on, iteration)[:1]

        return f.attempt(run, lambda: [f.const(I32, 1)])[0]

    def _called(
        self,
        region: Region,
        outputs: Sequence[Tensor],
        places: Mapping[Memory, Value] = MappingProxyType({}),
        found: Mapping[Var, Value] = MappingProxyType({}),
        recursion: Recursion | None = None,
    ) -> list[Value]:
        """The status after a call of the function of a region, which may be that of a `recursion`.

        Some of its memory may be elsewhere than in this region, and sizes may be `found` here.
        """
        taken = dict.fromkeys(t.memory for t in region.taken() if t.memory.origin != "constant")
        taken |= dict.fromkeys(m for body in self.bodies.values() for m in body.memories)
        known = {**self.frame.variables, **found}
        variables = list(known)
        memories = [*taken, *(tensor.memory for tensor in outputs)]
        params = [(I64, f"size{n}") for n in range(len(variables))]
        params += [(POINTER, f"memory{n}") for n in range(len(memories))]
        if self.exported is not None:
            params += [(POINTER, "workspace"), (POINTER, "context")]
        module = self.function.module
        name = f"{self.symbol}.{len(module.functions)}"
        f = module.function(name, params, I32, optimised=False)
        if self.exported is not None:
            f.memory, f.context = f.params[-2:]
        sizes = dict(zip(variables, f.params, strict=False))
        frame = Values(f, {}, sizes, (), frozenset(sizes))
        pointers = f.params[len(variables) :]
        given, results = dict(zip(taken, pointers, strict=False)), pointers[len(taken) :]
        bodies = {**self.bodies}
        if recursion is not None:
            bodies[recursion.depth] = _Body(recursion, name, variables, [*taken])
        operands = region, frame, given, results, self.exported, self.times, bodies
        RegionEmitter(self.symbol, self.kernels, *operands).emit()
        arguments = [*known.values()]
        arguments += [places[m] if m in places else self._pointer(m) for m in memories]
        if self.exported is not None:
            arguments += self._given_memory()
        return [self.function.call(name, I32, *arguments)]

    def _pointer(self, memory: Memory) -> Value:
        f, plan = self.function, self.plan
        if memory in self.given:
            return self.given[memory]
        if memory.origin == "constant" and self.exported is not None:
            weights = f.load(POINTER, context_word(f, WEIGHTS), 8)
            return f.element(weights, self.exported.position(memory), I8)
        if memory.origin == "constant":
            table = Value(f, POINTER, f"@{constants_name(self.symbol)}")
            return f.load(POINTER, f.element(table, memory.index, I64), 8)
        if memory in plan.direct:
            return self.outputs[plan.direct[memory]]
        assert self.workspace is not None
        if memory in plan.offsets:
            return f.element(self.workspace, plan.offsets[memory], I8)
        return f.element(self.workspace, self.starts[plan.slots[memory]], I8)


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """The locations of the tensors of a region.

    Fields:
        direct: the memory that results have, with the position of the result.
        copied: the results whose elements are copied at the end, from the memory of a tensor.
        offsets: the positions in the workspace of memory with a fixed size.
        slots: the number of the slot of other memory.
        slot_sizes: each slot is as large as the largest of these.
        fixed: the size of the workspace without slots.
    Units:
        bytes
    """

    direct: Mapping[Memory, int]
    copied: Sequence[tuple[int, Tensor]]
    offsets: Mapping[Memory, int]
    slots: Mapping[Memory, int]
    slot_sizes: Sequence[Sequence[IndexPoly]]
    fixed: int


@dataclass(frozen=True, slots=True, eq=False)
class _Lifetime:
    memory: Memory
    size: IndexPoly
    first: int
    last: int


def plan_memory(region: Region) -> MemoryPlan:
    """The memory plan; new tensors share memory if their live ranges are disjoint."""
    direct: dict[Memory, int] = {}
    copied: list[tuple[int, Tensor]] = []
    new = {tensor.memory for tensor in region.new_tensors()}
    for index, tensor in enumerate(region.results):
        if tensor.memory in new and tensor.memory not in direct:
            direct[tensor.memory] = index
        else:
            copied.append((index, tensor))
    lifetimes = _lifetimes(region, direct)
    fixed = [each for each in lifetimes if each.size.constant is not None]
    offsets, total = _packed(fixed)
    slots, slot_sizes = _slots([each for each in lifetimes if each.size.constant is None])
    return MemoryPlan(direct, copied, offsets, slots, slot_sizes, total)


def workspace_bytes(
    region: Region,
    of_step: Callable[[Step], IndexPoly],
    largest: Callable[[IndexPoly, IndexPoly], IndexPoly],
    rounded: Callable[[IndexPoly], IndexPoly],
) -> IndexPoly:
    """The memory of a region besides its results, with the `largest` that a step takes.

    Tensors with sizes that are not constants take `rounded` sizes.
    """

    def inner(step: Step) -> IndexPoly:
        regions = step.regions if isinstance(step, NESTING) else ()
        ways = [workspace_bytes(way, of_step, largest, rounded) for way in regions]
        if isinstance(step, Recursion):  # no kernel runs in the calls around the innermost one
            outer = workspace_bytes(step.region, lambda _: as_poly(0), largest, rounded)
            return outer * (step.most - 1) + ways[0]
        return reduce(largest, ways) if ways else of_step(step)

    plan = plan_memory(region)
    slots = (rounded(reduce(largest, slot)) for slot in plan.slot_sizes)
    return sum(slots, as_poly(plan.fixed)) + reduce(largest, map(inner, region.steps), as_poly(0))


def byte_count(tensor: Tensor) -> IndexPoly:
    """The size of a tensor in bytes."""
    return prod((as_poly(dim) for dim in tensor.shape), start=as_poly(tensor.itemsize))


def _lifetimes(region: Region, direct: Mapping[Memory, int]) -> list[_Lifetime]:
    """The first and the last step that uses the memory of each tensor that is not a result."""
    last: dict[Memory, int] = {}
    for index, step in enumerate(region.steps):
        last.update((tensor.memory, index) for tensor in step.reads())
    return [
        _Lifetime(tensor.memory, byte_count(tensor), index, last[tensor.memory])
        for index, step in enumerate(region.steps)
        for tensor in step.outputs
        if tensor.memory not in direct
    ]


def _packed(lifetimes: Sequence[_Lifetime]) -> tuple[dict[Memory, int], int]:
    """The lowest free position for each, the largest first; and the total size."""
    placed: list[tuple[int, int, _Lifetime]] = []
    total = 0
    for each in sorted(lifetimes, key=lambda each: -(each.size.constant or 0)):
        size = _aligned(each.size.constant or 0)
        position = 0
        for start, stop, other in sorted(placed, key=lambda entry: entry[0]):
            if SHARED_MEMORY and (other.last < each.first or each.last < other.first):
                continue
            if position + size <= start:
                break
            position = max(position, stop)
        placed.append((position, position + size, each))
        total = max(total, position + size)
    return {each.memory: start for start, _, each in placed}, total


def _slots(lifetimes: Sequence[_Lifetime]) -> tuple[dict[Memory, int], list[list[IndexPoly]]]:
    """A slot for each, if possible a free one for the same size; and the sizes of the slots."""
    slots: dict[Memory, int] = {}
    sizes: list[list[IndexPoly]] = []
    busy_until: list[int] = []
    for each in lifetimes:
        free = [n for n, last in enumerate(busy_until) if last < each.first]
        free = free if SHARED_MEMORY else []
        same = [n for n in free if any(each.size.same(size) for size in sizes[n])]
        if not free:
            sizes.append([])
            busy_until.append(0)
        slot = (same or free or [len(sizes) - 1])[0]
        if slot not in same:
            sizes[slot].append(each.size)
        slots[each.memory], busy_until[slot] = slot, each.last
    return slots, sizes


def _aligned(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES
