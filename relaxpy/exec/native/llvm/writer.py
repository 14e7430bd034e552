"""Writes LLVM IR as text: functions, and instructions on scalars and explicit vectors.

Text is faster to write than objects of llvmlite, and needs no import of it. No optimiser pass runs,
so a kernel executes the instructions that are written here, except in functions that are
`promoted`. Basic blocks are in SSA form.

A function has a stack up to a limit, and other memory beyond that: threads may have small stacks,
and each function of a call needs some of it. LLVM also spills registers there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar, cast

from typing_extensions import override

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Allocations, CodeSize
from relaxpy.exec.native.llvm.instructions import Instructions, Slot as Slot
from relaxpy.exec.native.llvm.typed_values import (
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
    Operand as Operand,
    Type as Type,
    Value as Value,
    compared,
    folded,
)

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.llvm_module import Module

T = TypeVar("T")
Carried: TypeAlias = Sequence[Value]
"""The values that an iteration of a loop passes on to the next."""


PROMOTED: Final = "relaxpy-promoted"
"""The attribute of functions whose local variables LLVM promotes to registers."""
MEMORY: Final = "relaxpy_memory"
"""The variable of a module with the addresses of the allocator's functions."""


class EntryCode(NamedTuple):
    """The function that an entry runs, as the body of so many `tasks` if these are not 0.

    Each task needs the bytes of `scratch`. `tasks` of other functions may be `BY_WORDS`.
    """

    function: str
    tasks: int = 0
    scratch: int = 0


class Function(Instructions):
    """A function under construction; its methods append instructions to the open block.

    A function that is not `optimised` takes less time to compile; functions with loops always are.
    Memory of one that is `promoted` becomes registers where all addresses are constants.
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
        Instructions.__init__(self, module)
        self.name, self.result = name, result
        self.params = [Value(self, type, f"%{param}") for type, param in params]
        self.memory: Value | None = None
        """The memory that an exported function gets: what `reserve` returns."""
        self.context: Value | None = None
        """The address of the context of a call (`threads/code.py`) that it gets."""
        self.is_public = False
        """True if callers of an exported program call it, so that any CPU can run it."""
        self.task_bytes = 0
        """The memory that each thread needs for tasks of it, after its own memory."""
        self.optimised, self._has_loops = optimised, False
        self.promoted = False
        self.stack = Stack(self)
        self._top = self._lines
        self._block = "entry"
        self._exits: list[str] = []
        self._left: set[str] = set()
        self._tasks: tuple[int, int, EntryCode] | None = None
        self._closed: tuple[EntryCode | None, str] | None = None

    def close(self) -> None:
        """Keep one text, which takes less memory than lines: no instruction follows."""
        self._closed = self.only_tasks(), self.text()
        self._top, self._lines, self._known, self.stack = [], [], {}, Stack(self)

    def rename(self, old: str, new: str) -> None:
        """Replace the start `old` of the names in a closed function, and of its own."""
        assert self._closed is not None
        tasks, text = self._closed
        if tasks is not None:
            tasks = tasks._replace(function=tasks.function.replace(old, new, 1))
        self._closed = tasks, text.replace(f"@{old}", f"@{new}")
        if self.name.startswith(old):
            self.name = self.name.replace(old, new, 1)

    def text(self) -> str:
        """The function as LLVM IR."""
        if self._closed is not None:
            return self._closed[1]
        attributes = "#0" if self.is_optimised else "#0 noinline optnone"
        attributes += f' "{PROMOTED}"' if self.promoted else ""
        linkage = "internal" if self.module.is_exported else ""
        if self.is_public:
            linkage, attributes = self.module.platform.system.visible, "#1"
        head = f"{' '.join(self.head(f'define {linkage}').split())} {attributes} {{"
        return "\n".join([head, "entry:", *_flat(self.stack.lines()), *_flat(self._top), "}"])

    def head(self, keyword: str) -> str:
        """The signature of the function after `define` or `declare`."""
        return f"{keyword} {self.result} @{self.name}({', '.join(map(str, self.params))})"

    @property
    def is_optimised(self) -> bool:
        """True if the speed of the function matters."""
        return self.optimised or self._has_loops

    def __len__(self) -> int:
        """The number of values that the function has named."""
        return self._count

    def length(self) -> int:
        """The number of instructions before this position."""
        return len(_flat(self._top))

    def note_tasks(self, start: int, tasks: EntryCode) -> None:
        """From `start` up to here, `tasks` run with the parameters as context."""
        self._tasks = start, self.length(), tasks

    def only_tasks(self) -> EntryCode | None:
        """The body of the tasks, if it only runs them, and returns their status."""
        if self._closed is not None:
            return self._closed[0]
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
        if self._count < CodeSize.SHORT:
            return 0
        lines = _flat(self._top)
        labels = [(n, line) for n, line in enumerate(lines) if line.endswith(":")]
        # If nothing is reserved, LLVM merges the code after `reserve` into the preceding block.
        starts = [n for n, label in labels if not label.startswith("reserved")]
        return max(b - a for a, b in pairwise((0, *starts, len(lines))))

    def slot(self) -> Slot:
        """This position, where instructions can be inserted later."""
        slot: Slot = []
        self._lines.append(slot)
        return slot

    def at(self, slot: Slot, build: Callable[[], T]) -> T:
        """The result of `build`, whose instructions, among which are no jumps, are in `slot`."""
        outer, known = self._lines, self._known
        self._lines, self._known = slot, {}
        result = build()
        self._lines, self._known = outer, known
        return result

    # ---- memory of the function

    def alloca(self, type: Type, count: int) -> Value:
        """The address of `count` elements, which live until the function returns.

        They are aligned to 64 bytes, and allocated once, also inside a loop. They are on the stack,
        unless that would become too large and there is other memory.
        """
        value = Value(self, POINTER, f"%v{self._number()}")
        self.stack.add(value.name, type, count)
        return value

    def reserve(self, size: Value) -> tuple[Value, Slot, Slot]:
        """The address of `size` bytes, a multiple of 64, and two slots that `release` needs.

        Memory that exceeds the stack follows them, and then that of tasks. The innermost attempt
        ends if memory is exhausted.
        """
        if self.memory is not None:
            self.put(f"%more = getelementptr i8, {self.memory}, {size}")  # `put` indents it
            after = self.slot()
            self.stack.extend("%more", after)
            return self.memory, after, after
        label = self._label("reserved")
        jump: Slot = [f"  br label %{label}"]
        self._lines.append(jump)
        self._open(label)
        aligned, more = self.slot(), self.slot()
        self.stack.extend("%more", more)
        return Value(self, POINTER, "%memory"), jump, aligned

    def release(self, size: Value, jump: Slot, aligned: Slot) -> None:
        """Free reserved memory; for size 0, nothing is reserved."""
        if self.memory is not None:
            aligned.append(f"  %tasks = getelementptr i8, ptr %more, i64 {self.stack.more}")
            return
        if size.name == "0" and not self.stack.more:
            return
        going_on = str(jump.pop()).rpartition(" ")[2]
        self._left.add(self._exits[-1])

        def taken() -> Value:
            memory = self.take(size + self.stack.more)
            absent = self.new(BOOL, f"icmp eq {memory}, null")
            self.put(f"br {absent}, label %{self._exits[-1]}, label {going_on}")
            return memory

        memory = self.at(jump, taken)
        aligned.append(f"  %memory = getelementptr i8, {memory}, i64 0")
        aligned.append(f"  %more = getelementptr i8, {memory}, {size}")
        self.give(memory)

    def take(self, size: Value) -> Value:
        """The address of new memory of so many bytes, at a multiple of 64, or null."""
        return self.new(POINTER, f"call ptr {self._memory(0).name}({size})")

    def give(self, memory: Value) -> None:
        """Free memory that was taken."""
        self.put(f"call void {self._memory(1).name}({memory})")

    def _memory(self, number: int) -> Value:
        """The address of a function for memory, from the variable that is set at linking."""
        self.module.words(MEMORY, 2)
        table = Value(self, POINTER, f"@{MEMORY}")
        return self.load(POINTER, self.element(table, number, I64))

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
        self, carried: Carried, condition: Callable[..., Value], body: Callable[..., Carried]
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
        """True if the current block is in an attempt, which it may leave."""
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
        """The values of a body that runs once; as for other blocks, none is known outside."""
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

    @override
    def _shared(self, words: int) -> Value:
        return self.stack.shared(words)


def _flat(slot: Slot) -> Sequence[str]:
    if set(map(type, slot)) <= {str}:
        return cast("list[str]", slot)
    return [line for part in slot for line in ([part] if isinstance(part, str) else _flat(part))]


if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.instructions import Slot


class Stack:
    """The memory of `function`: `more` is the number of bytes elsewhere."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.more = 0
        self._left = Allocations.STACK
        self._lines: Slot = []
        self._base, self._elsewhere = "", self._lines
        self._words = 0

    def lines(self) -> Slot:
        """The instructions at the start of the function."""
        words = f"  %shared = alloca i64, i64 {self._words}, align {LINE_BYTES}"
        return [words, self._lines] if self._words else self._lines

    def extend(self, base: str, place: Slot | None = None) -> None:
        """Use the memory at `base`, which is known at `place`, by default from the start on."""
        self._base = base
        self._elsewhere = self._lines if place is None else place

    def has(self, size: int) -> bool:
        """True if the stack has so many bytes left."""
        return size <= max(self._left, LINE_BYTES)

    def add(self, name: str, type: Type, count: int) -> None:
        """Define `name` as the address of `count` elements."""
        size = -(-max(type.bits, 8) * type.lanes * count // (8 * LINE_BYTES)) * LINE_BYTES
        if not self._base or self.has(size):
            self._left -= size
            # LLVM does not promote memory of several elements unless these are an array.
            self._lines.append(f"  {name} = alloca [{count} x {type}], align {LINE_BYTES}")
        else:
            place = f"getelementptr i8, ptr {self._base}, i64 {self.more}"
            self._elsewhere.append(f"  {name} = {place}")
            self.more += size

    def shared(self, words: int) -> Value:
        """The address of `words` words of 64 bits; the next caller may reuse them."""
        self._words = max(self._words, words, 1)
        return Value(self.function, POINTER, "%shared")
