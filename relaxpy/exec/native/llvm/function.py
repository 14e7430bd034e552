"""Writes LLVM IR as text: functions, and instructions on scalars and explicit vectors.

Text is faster to write than objects of llvmlite, and needs no import of it. No optimiser pass runs
on it, so a kernel performs the instructions that are written here. Basic blocks are in SSA form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, cast

from relaxpy.exec.native.llvm.literals import compared, folded, literal, power_of_two_in
from relaxpy.exec.native.llvm.stack import Stack
from relaxpy.exec.native.llvm.types import (
    BOOL as BOOL,
    F32 as F32,
    F64 as F64,
    FLOATS as FLOATS,
    I8 as I8,
    I16 as I16,
    I32 as I32,
    I64 as I64,
    I128 as I128,
    POINTER as POINTER,
    SUFFIXES as SUFFIXES,
    VOID as VOID,
    Type as Type,
)
from relaxpy.exec.native.llvm.value import Operand as Operand, Value as Value

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.module import Module


_SHORT = 512
"""Functions of fewer values have no long blocks."""
Slot: TypeAlias = list["str | Slot"]
"""A position among the instructions of a function, where others can be inserted later."""
Carried: TypeAlias = Sequence[Value]
"""The values that an iteration of a loop passes on to the next."""


class Function:
    """A function under construction; its methods append instructions to the open block.

    An instruction that only computes is not repeated within a block: LLVM would have to find that.
    `flags` are the fast-math flags of the floating-point arithmetic that follows. `contract` lets
    a product and a sum become one instruction, the same one on every processor with FMA. A
    function that is not `optimised` takes less time to compile; functions with loops always are.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        params: Sequence[tuple[Type, str]],
        result: Type,
        *,
        optimised: bool,
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.flags = "contract"
        self.params = [Value(self, type, f"%{param}") for type, param in params]
        self.optimised, self._has_loops = optimised, False
        self.stack = Stack(self)
        self._lines: Slot = []
        self._top = self._lines
        self._block = "entry"
        self._known: dict[str, Value] = {}
        self._exits: list[str] = []
        self._left: set[str] = set()
        self._count = 0
        self._tasks: tuple[int, int, tuple[str, int, int]] | None = None

    def text(self) -> str:
        """The function as LLVM IR."""
        attributes = "#0" if self.is_optimised else "#0 noinline optnone"
        head = f"{self.head('define')} {attributes} {{"
        return "\n".join([head, "entry:", *_flat(self.stack.lines()), *_flat(self._top), "}"])

    def head(self, keyword: str) -> str:
        """The signature of the function after `define` or `declare`."""
        return f"{keyword} {self.result} @{self.name}({', '.join(map(str, self.params))})"

    @property
    def is_optimised(self) -> bool:
        """Whether the time that the function takes matters."""
        return self.optimised or self._has_loops

    def __len__(self) -> int:
        """The number of values that the function has named."""
        return self._count

    def mentions(self, names: Sequence[str]) -> bool:
        """Whether one of these names is in an instruction."""
        return bool(names) and any(name in line for line in _flat(self._top) for name in names)

    def length(self) -> int:
        """The number of instructions before this position."""
        return len(_flat(self._top))

    def note_tasks(self, start: int, tasks: tuple[str, int, int]) -> None:
        """From `start` up to here, `tasks` run with the parameters as context."""
        self._tasks = start, self.length(), tasks

    def only_tasks(self) -> tuple[str, int, int] | None:
        """The body, the number of tasks and the bytes that each needs, if all it does is run them.

        It then returns their status.
        """
        if self._tasks is None:
            return None
        start, stop, tasks = self._tasks
        lines = _flat(self._top)
        is_all = all(
            line.startswith(("  br label", "  ret ")) or line.endswith(":") or " = phi " in line
            for line in (*lines[:start], *lines[stop:])
        )
        return tasks if is_all else None

    def longest_block(self) -> int:
        """The number of instructions of the longest basic block; 0 if all are short."""
        if self._count < _SHORT:
            return 0
        lines = _flat(self._top)
        labels = [(n, line) for n, line in enumerate(lines) if line.endswith(":")]
        # LLVM joins what follows `reserve` with the block before it if nothing is reserved.
        starts = [n for n, label in labels if not label.startswith("reserved")]
        return max(b - a for a, b in pairwise((0, *starts, len(lines))))

    def slot(self) -> Slot:
        """This position, where instructions can be inserted later."""
        slot: Slot = []
        self._lines.append(slot)
        return slot

    @contextmanager
    def at(self, slot: Slot) -> Iterator[None]:
        """Insert the instructions that follow, among which are no jumps, in `slot`."""
        outer, self._lines = self._lines, slot
        known, self._known = self._known, {}
        yield
        self._lines, self._known = outer, known

    # ---- instructions and constants

    def put(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def new(self, type: Type, instruction: str) -> Value:
        """Append an instruction, whose result has `type`."""
        value = Value(self, type, f"%v{self._number()}")
        self._lines.append(f"  {value.name} = {instruction}")
        return value

    def computed(self, type: Type, instruction: str) -> Value:
        """The result of an instruction that has no effect; a block has it once."""
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self.new(type, instruction)
        return known

    def const(self, type: Type, value: float) -> Value:
        """A constant; the same number in all lanes of a vector."""
        text = literal(type.element, value)
        if type is not I64:
            return Value(self, type, f"splat ({type.element} {text})" if type.lanes > 1 else text)
        number = Value(self, type, text)
        number.multiple = power_of_two_in(int(value))
        return number

    def index(self, value: Operand) -> Value:
        """`value` as a value of i64 if it is a number."""
        return value if isinstance(value, Value) else self.const(I64, value)

    def iota(self, type: Type) -> Value:
        """The numbers 0, 1, 2... in the lanes of a vector."""
        return self.constants(type, range(type.lanes))

    def constants(self, type: Type, numbers: Sequence[float]) -> Value:
        """Numbers in the lanes of a vector of elements of `type`."""
        found = [literal(type.element, n) for n in numbers]
        if len(found) == 1:
            return Value(self, Type(type.element), found[0])
        text = ", ".join(f"{type.element} {n}" for n in found)
        return Value(self, Type(type.element, len(found)), f"<{text}>")

    def like(self, value: Value, other: Operand) -> Value:
        """`other` as an operand beside `value`: a number as a constant, a scalar in all lanes."""
        if not isinstance(other, Value):
            return self.const(value.type, other)
        return self.splat(other, value.type.lanes) if other.type.lanes == 1 else other

    def arithmetic(self, name: str, a: Value, b: Operand) -> Value:
        """`add`, `sub`, `mul` or `div` of floats, or an instruction on two integers by its name."""
        b = self.like(a, b)
        if a.type.lanes == 1 < b.type.lanes:
            a = self.splat(a, b.type.lanes)
        if a.type.is_float:
            name = " ".join(filter(None, (f"f{name}", self.flags)))
        elif a.type.lanes == 1 and (known := folded(name, a.name, b.name, a.type.bits)) is not None:
            operands = {b.name: b, a.name: a}
            return operands[known] if known in operands else self.const(a.type, int(known))
        result = self.computed(a.type, f"{name} {a}, {b.name}")
        if name in ("add", "sub"):
            result.multiple = min(a.multiple, b.multiple)
        elif name == "mul":
            result.multiple = a.multiple * b.multiple
        return result

    def remainder(self, a: Operand, divisor: int) -> Value:
        """The rest of a division of an i64, which is not negative, by a positive number."""
        a = self.index(a)
        if a.multiple % divisor == 0:
            return self.const(I64, 0)
        return self.new(I64, f"urem {a}, {divisor}")

    def compare(self, predicate: str, a: Value, b: Operand) -> Value:
        """A comparison by the predicate of `fcmp` or `icmp`, such as `olt` or `slt`."""
        b = self.like(a, b)
        known = compared(predicate, a.name, b.name)
        if known is not None:
            return self.const(BOOL, known)
        kind = "fcmp" if a.type.is_float else "icmp"
        return self.computed(a.type.of("i1"), f"{kind} {predicate} {a}, {b.name}")

    def select(self, condition: Value, yes: Value, no: Operand) -> Value:
        """`yes` where the condition holds, else `no`, in each lane."""
        no = self.like(yes, no)
        if condition.name in ("true", "false"):
            return yes if condition.name == "true" else no
        if condition.type.lanes > 1:
            yes, no = self.splat(yes, condition.type.lanes), self.splat(no, condition.type.lanes)
        result = self.computed(yes.type, f"select {condition}, {yes}, {no}")
        result.multiple = min(yes.multiple, no.multiple)
        return result

    def cast(self, instruction: str, value: Value, element: str) -> Value:
        """A conversion such as `sitofp` or `bitcast`, with the same number of lanes."""
        type = value.type.of(element)
        return self.computed(type, f"{instruction} {value} to {type}")

    def call(self, name: str, result: Type, *args: Value) -> Value:
        """A call of a function that is in the module or defined elsewhere."""
        self.module.declare(name, result, [a.type for a in args])
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result == VOID:
            self.put(text)
            return Value(self, VOID, "")
        return self.new(result, text)

    def intrinsic(self, name: str, a: Value, *others: Operand) -> Value:
        """An intrinsic whose operands and result have the type of `a`, such as `fma` or `smax`."""
        operands = [a, *(self.like(a, o) for o in others)]
        full = f"llvm.{name}.{a.type.suffix}"
        self.module.declare(full, a.type, [o.type for o in operands])
        result = self.computed(a.type, f"call {a.type} @{full}({', '.join(map(str, operands))})")
        if name in ("smin", "smax"):
            result.multiple = min(o.multiple for o in operands)
        return result

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """`a * b + c`, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def fence(self, value: Value) -> Value:
        """`value`, whose computation LLVM does not combine with its uses, which may take long."""
        return self.intrinsic("arithmetic.fence", value) if value.type.is_float else value

    # ---- memory

    def alloca(self, type: Type, count: int) -> Value:
        """The address of `count` elements, which are there until the function returns.

        They are aligned to 64 bytes, and allocated once, however often a loop runs. They are on the
        stack, unless that would become too large and there is other memory.
        """
        value = Value(self, POINTER, f"%v{self._number()}")
        self.stack.add(value.name, type, count)
        return value

    def reserve(self, size: Value) -> tuple[Value, Slot, Slot]:
        """The address of `size` bytes, a multiple of 64, and two places that `release` needs.

        What the stack does not hold follows them. The innermost attempt ends if there is no memory.
        """
        label = self._label("reserved")
        jump: Slot = [f"  br label %{label}"]
        self._lines.append(jump)
        self._open(label)
        aligned, more = self.slot(), self.slot()
        self.stack.extend("%more", more)
        return Value(self, POINTER, "%memory"), jump, aligned

    def release(self, size: Value, jump: Slot, aligned: Slot) -> None:
        """Free what was reserved; if no byte is needed, nothing is reserved."""
        if size.name == "0" and not self.stack.more:
            return
        going_on = str(jump.pop()).rpartition(" ")[2]
        self._left.add(self._exits[-1])
        self.module.declare("malloc", POINTER, [I64])
        with self.at(jump):
            self.put(f"%held = call ptr @malloc({size + (self.stack.more + 64)})")
            self.put("%absent = icmp eq ptr %held, null")
            self.put(f"br i1 %absent, label %{self._exits[-1]}, label {going_on}")
        with self.at(aligned):
            address = self.new(I64, "ptrtoint ptr %held to i64")
            address = self.arithmetic("and", address + 63, -64)
            self.put(f"%memory = inttoptr {address} to ptr")
            self.put(f"%more = getelementptr i8, ptr %memory, {size}")
        self.call("free", VOID, Value(self, POINTER, "%held"))

    def element(self, pointer: Value, index: Operand, type: Type) -> Value:
        """The address of the element at `index` of an array of the scalar type of `type`."""
        index = self.index(index)
        if index.name == "0":
            return pointer
        address = f"getelementptr {type.element}, ptr {pointer.name}, {index}"
        return self.computed(POINTER, address)

    def load(self, type: Type, pointer: Value, align: int | None = None) -> Value:
        """The value at `pointer`; by default aligned as one element of the type."""
        return self.new(type, f"load {type}, {pointer}, align {align or type.alignment}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        """Store `value` at `pointer`; by default aligned as one element of the type."""
        self.put(f"store {value}, {pointer}, align {align or value.type.alignment}")

    def lanes_below(self, count: Value, lanes: int) -> Value:
        """The mask whose first `count` lanes hold; all if there are not more lanes."""
        # For AVX2, LLVM 22 may load lanes that are not in the mask if it knows the mask.
        if not count.name.startswith("%"):
            count = self.computed(I64, f'call i64 asm "", "=r,0"({count})')
        numbers = self.iota(Type("i64", lanes))
        return self.compare("slt", numbers, self.splat(count, lanes))

    def masked_load(self, type: Type, pointer: Value, mask: Value, other: Operand = 0) -> Value:
        """The lanes of the mask from memory, and `other` in the rest, of which none is read."""
        other = other if isinstance(other, Value) else self.const(type, other)
        if type.element == "half":
            # LLVM 22 fails on halves of masked vectors in functions that it does not optimise.
            bits = self.cast("bitcast", other, "i16")
            return self.cast("bitcast", self.masked_load(bits.type, pointer, mask, bits), "half")
        name = f"llvm.masked.load.{type.suffix}.p0"
        self.module.declare(name, type, ["ptr", "i32 immarg", mask.type, type])
        arguments = f"{pointer}, i32 {type.alignment}, {mask}, {other}"
        return self.new(type, f"call {type} @{name}({arguments})")

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of the mask; the memory of the others is not touched."""
        # LLVM 22 narrows integers in masked stores of AVX-512, and stores all bits if it knows that
        # a mask has one lane. Floats are not narrowed there; nothing is known of a hidden mask.
        if value.type.element == "i32":
            value = self.cast("bitcast", value, "float")
        elif value.type.element in ("i8", "i16"):
            mask = self._hidden(mask)
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, VOID, [value.type, "ptr", "i32 immarg", mask.type])
        self.put(f"call void @{name}({value}, {pointer}, i32 {value.type.alignment}, {mask})")

    def _hidden(self, mask: Value) -> Value:
        """`mask` as the result of an empty piece of assembly, in a mask register.

        In a general register it would be read from a vector with an instruction of AVX2, which LLVM
        22 also takes for those of the 32 vector registers that only AVX-512 has.
        """
        if not self.module.has_avx512:
            return mask
        count = mask.type.lanes
        if count > 64:  # more than a register has
            parts = (range(count // 2), range(count // 2, count))
            low, high = (self._hidden(self.shuffle(mask, None, part)) for part in parts)
            return self.shuffle(low, high, range(count))
        lanes = max(count, 8)
        if lanes > count:
            mask = self.shuffle(mask, self.const(mask.type, 0), [min(n, count) for n in range(8)])
        mask = self.new(mask.type, f'call {mask.type} asm "", "=k,0"({mask})')
        return mask if lanes == count else self.shuffle(mask, None, range(count))

    def gather(
        self, type: Type, pointer: Value, offsets: Value, mask: Value | None = None
    ) -> Value:
        """The elements of `type` at `offsets` from `pointer`; 0 where the mask does not hold."""
        if offsets.type.lanes == 1:
            return self.load(type, self.element(pointer, offsets, type))
        if type.element == "half":  # as for masked loads
            return self.cast("bitcast", self.gather(Type("i16"), pointer, offsets, mask), "half")
        result, places = self._places(type, pointer, offsets)
        mask = mask or self.const(result.of("i1"), 1)
        name = f"llvm.masked.gather.{result.suffix}.{places.type.suffix}"
        self.module.declare(name, result, [places.type, "i32 immarg", mask.type, result])
        arguments = f"{places}, i32 {type.alignment}, {mask}, {self.const(result, 0)}"
        return self.new(result, f"call {result} @{name}({arguments})")

    def scatter(
        self, value: Value, pointer: Value, offsets: Value, mask: Value | None = None
    ) -> None:
        """Store the elements of `value` at `offsets` from `pointer`, in the lanes of the mask."""
        type = Type(value.type.element)
        if offsets.type.lanes == 1:
            self.store(value, self.element(pointer, offsets, type))
            return
        _, places = self._places(type, pointer, offsets)
        mask = mask or self.const(value.type.of("i1"), 1)
        name = f"llvm.masked.scatter.{value.type.suffix}.{places.type.suffix}"
        self.module.declare(name, VOID, [value.type, places.type, "i32 immarg", mask.type])
        self.put(f"call void @{name}({value}, {places}, i32 {type.alignment}, {mask})")

    def _places(self, type: Type, pointer: Value, offsets: Value) -> tuple[Type, Value]:
        lanes = offsets.type.lanes
        address = f"getelementptr {type.element}, {pointer}, {offsets}"
        return Type(type.element, lanes), self.computed(Type("ptr", lanes), address)

    def prefetch(self, pointer: Value, *, write: bool = False) -> None:
        """Ask for the cache line at `pointer`, which need not be valid."""
        self.module.declare(
            "llvm.prefetch.p0", VOID, ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"]
        )
        self.put(f"call void @llvm.prefetch.p0({pointer}, i32 {int(write)}, i32 3, i32 1)")

    # ---- vectors

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector with `value` in all lanes; a vector is returned as it is."""
        if lanes == 1 or value.type.lanes > 1:
            return value
        type = Type(value.type.element, lanes)
        if value.name[0] not in "%@":
            return Value(self, type, f"splat ({value})")
        first = self.computed(type, f"insertelement {type} poison, {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.computed(type, f"shufflevector {first}, {type} poison, {zeros}")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """The given lanes of `a` followed by `b`; a scalar if there is one."""
        if len(lanes) == 1 and b is None:
            return self.lane(a, lanes[0])
        numbers = ", ".join(f"i32 {n}" for n in lanes)
        other = f"{a.type} {'poison' if b is None else b.name}"
        type = Type(a.type.element, len(lanes))
        return self.computed(type, f"shufflevector {a}, {other}, <{len(lanes)} x i32> <{numbers}>")

    def lane(self, value: Value, lane: int) -> Value:
        """One lane of a vector."""
        return self.computed(Type(value.type.element), f"extractelement {value}, i64 {lane}")

    def fold_lanes(self, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """All lanes combined to a scalar, in a tree whose order is fixed. Their number is 2**k."""
        while (half := value.type.lanes // 2) > 0:
            low = self.shuffle(value, None, range(half))
            high = self.shuffle(value, None, range(half, 2 * half))
            value = combine(low, high)
        return value

    # ---- control flow

    def loop(
        self,
        start: Operand,
        stop: Operand,
        step: Operand,
        carried: Carried,
        body: Callable[..., Carried | None],
    ) -> list[Value]:
        """`carried = body(index, *carried)` for each index; returns the last values.

        The index is an i64 from `start` in steps of `step` > 0 while it is less than `stop`.
        """
        start, stop, step = self.index(start), self.index(stop), self.index(step)
        runs = compared("slt", start.name, stop.name)
        again = folded("add", start.name, step.name, 64)
        if runs is False:
            return list(carried)
        if runs and again is not None and compared("sge", again, stop.name):
            return self._inlined(lambda: body(start, *carried))
        self._has_loops = True
        inside, after, before = self._label("loop"), self._label("after"), self._block
        if runs:
            self.put(f"br label %{inside}")
        else:
            enters = self.compare("slt", start, stop)
            self.put(f"br {enters}, label %{inside}, label %{after}")
        self._open(inside)
        index = Value(self, I64, f"%i{self._number()}")
        index.multiple = min(start.multiple, step.multiple)
        current = [Value(self, v.type, f"%c{self._number()}") for v in carried]
        mark = len(self._lines)
        results = list(body(index, *current) or ())
        following = self.new(I64, f"add nsw {index}, {step.name}")
        continues = self.compare("slt", following, stop)
        latch = self._block
        self.put(f"br {continues}, label %{inside}, label %{after}")
        phis = zip((index, *current), (start, *carried), (following, *results), strict=True)
        self._lines[mark:mark] = [
            f"  {phi.name} = phi {phi.type} [ {first.name}, %{before} ], [ {last.name}, %{latch} ]"
            for phi, first, last in phis
        ]
        self._open(after)
        if runs:
            return results
        pairs = zip(carried, results, strict=True)
        return [self._phi((first, before), (last, latch)) for first, last in pairs]

    def while_loop(
        self,
        carried: Carried,
        condition: Callable[..., Value],
        body: Callable[..., Carried],
    ) -> list[Value]:
        """`carried = body(*carried)` as long as the condition of them holds."""
        self._has_loops = True
        head, inside, after = self._label("while"), self._label("do"), self._label("after")
        before = self._block
        self.put(f"br label %{head}")
        self._open(head)
        current = [Value(self, v.type, f"%c{self._number()}") for v in carried]
        mark = len(self._lines)
        holds = condition(*current)
        self.put(f"br {holds}, label %{inside}, label %{after}")
        self._open(inside)
        results = list(body(*current))
        latch = self._block
        self.put(f"br label %{head}")
        self._lines[mark:mark] = [
            f"  {phi.name} = phi {phi.type} [ {first.name}, %{before} ], [ {last.name}, %{latch} ]"
            for phi, first, last in zip(current, carried, results, strict=True)
        ]
        self._open(after)
        return current

    def branch(
        self,
        condition: Value,
        yes: Callable[[], Carried | None],
        no: Callable[[], Carried | None] | None = None,
    ) -> list[Value]:
        """The values of one of two bodies, which have the same number and types."""
        if condition.name in ("true", "false"):
            return self._inlined((yes if condition.name == "true" else no) or (lambda: None))
        then, other, after = self._label("then"), self._label("else"), self._label("after")
        self.put(f"br {condition}, label %{then}, label %{other}")
        ends = []
        for label, body in ((then, yes), (other, no)):
            self._open(label)
            ends.append(self._ended(body, after))
        return self._joined(after, ends)

    def attempt(self, body: Callable[[], Carried], failed: Callable[[], Carried]) -> list[Value]:
        """The values of `body`, or those of `failed` if it leaves."""
        label, after = self._label("failed"), self._label("after")
        self._exits.append(label)
        values = list(body())
        self._exits.pop()
        if label not in self._left:
            return values
        ends = [self._ended(lambda: values, after)]
        self._open(label)
        ends.append(self._ended(failed, after))
        return self._joined(after, ends)

    @property
    def is_attempted(self) -> bool:
        """Whether the current block is in an attempt, which it may leave."""
        return bool(self._exits)

    def leave(self, condition: Value, before: Callable[[], None] | None = None) -> None:
        """End the innermost attempt, after `before`, if the condition holds in any lane."""
        if condition.name == "false":
            return
        if (lanes := condition.type.lanes) > 1:
            condition = self.compare(
                "ne", self.new(Type(f"i{lanes}"), f"bitcast {condition} to i{lanes}"), 0
            )
        end, going_on = self._exits[-1], self._label("holds")
        self._left.add(end)
        leaving = end if before is None else self._label("leaves")
        self.put(f"br {condition}, label %{leaving}, label %{going_on}")
        if before is not None:
            self._open(leaving)
            before()
            self.put(f"br label %{end}")
        self._open(going_on)

    def _ended(
        self, body: Callable[[], Carried | None] | None, after: str
    ) -> list[tuple[Value, str]]:
        """The values of a body, each with its block, which goes on at `after`."""
        values = list((body() if body is not None else None) or ())
        self.put(f"br label %{after}")
        return [(v, self._block) for v in values]

    def _joined(self, after: str, ends: Sequence[Sequence[tuple[Value, str]]]) -> list[Value]:
        self._open(after)
        return [self._phi(a, b) for a, b in zip(*ends, strict=True)]

    def _inlined(self, body: Callable[[], Carried | None]) -> list[Value]:
        """The values of a body that runs once; none is known outside it, as of other blocks."""
        self._known = {}
        values = list(body() or ())
        self._known = {}
        return values

    def ret(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.put(f"ret {value}" if value is not None else "ret void")

    def _phi(self, *sources: tuple[Value, str]) -> Value:
        listed = ", ".join(f"[ {v.name}, %{block} ]" for v, block in sources)
        return self.new(sources[0][0].type, f"phi {sources[0][0].type} {listed}")

    def _open(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block, self._known = label, {}

    def _label(self, prefix: str) -> str:
        return f"{prefix}{self._number()}"

    def _number(self) -> int:
        self._count += 1
        return self._count


def _flat(slot: Slot) -> Sequence[str]:
    if set(map(type, slot)) <= {str}:
        return cast("list[str]", slot)
    return [line for part in slot for line in ([part] if isinstance(part, str) else _flat(part))]
