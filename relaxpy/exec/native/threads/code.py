"""Process-wide native code: functions, the variables that they share, and parallel loops."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import (
    BOOL,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    Carried,
    EntryCode,
    Function,
    Operand,
    Type,
    Value,
)
from relaxpy.exec.native.machine_code.machine import current, running_here
from relaxpy.exec.native.machine_code.objects import Library, link_object, process_object

Write: TypeAlias = Callable[..., Value | None]


class Code:
    """Functions by name, and the initial values of variables, such as `i64 0, align 64`."""

    def __init__(self, name: str, /, **variables: str) -> None:
        self.name, self.variables = name, variables
        self._functions: dict[str, tuple[Type, tuple[Type, ...], Write]] = {}

    def function(self, result: Type, *params: Type) -> Callable[[Write], Write]:
        """A decorator that adds the function written by another one, which returns its result."""

        def enter(write: Write) -> Write:
            self._functions[write.__name__.lstrip("_")] = result, params, write
            return write

        return enter

    def object(self) -> bytes:
        """The object file."""
        return process_object(self.name, lambda: ("", self._text()))

    def _text(self) -> str:
        module = Module(current().triple, current().vector_bits)
        module.add_text("\n".join(f"@{name} = global {v}" for name, v in self.variables.items()))
        for name, (result, params, write) in self._functions.items():
            f = module.function(name, [(t, f"p{n}") for n, t in enumerate(params)], result)
            f.ret(write(f, *f.params))
        return module.text()

    def linked(self, functions: Collection[str]) -> Library:
        """The addresses of some functions and of all variables, which this process uses."""
        with running_here():
            return link_object(self.object(), [*functions, *self.variables])

    def set(self, library: Library, name: str, value: int) -> None:
        """Set a variable that is an integer or an address."""
        size = 4 if self.variables[name].startswith("i32") else 8
        ctypes.memmove(library[name], value.to_bytes(size, "little"), size)


def at(f: Function, name: str) -> Value:
    """The address of a variable or a function."""
    return Value(f, POINTER, f"@{name}")


def read(f: Function, name: str, type: Type = I64) -> Value:
    """The value of a variable."""
    return f.load(type, at(f, name))


def add(f: Function, name: str, more: Operand) -> Value:
    """The value of a variable after an addition."""
    value = read(f, name) + more
    f.store(value, at(f, name))
    return value


def invoke(f: Function, name: str, result: Type, *args: Value, params: str = "") -> Value:
    """The result of the function at an address in a variable; `params` if their number varies."""
    text = f"call {result} {params} {read(f, name, POINTER).name}({', '.join(map(str, args))})"
    if result != VOID:
        return f.new(result, text)
    f.put(text)
    return Value(f, VOID, "")


def exchanged(f: Function, place: Value, old: Value, new: Value, order: str) -> Value:
    """Compare and exchange: return whether there was `old` at a place, and is now `new`."""
    pair = f.new(old.type, f"cmpxchg {place}, {old}, {new} {order} monotonic")
    return f.new(BOOL, f"extractvalue {{ {old.type}, i1 }} {pair.name}, 1")


def repeat(f: Function, condition: Callable[[], Value], body: Callable[[], object]) -> None:
    """Run `body` as long as a condition holds."""

    def iteration() -> Carried:
        body()
        return ()

    f.while_loop((), condition, iteration)


def address_of(function: Any) -> int:
    """The address of a function of Python."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


POOL: Final = "relaxpy_pool"
"""The variable of a module with the address of the pool's function, and its number of threads."""


def parallel(
    function: Function, tasks: Operand, captured: Sequence[Value], body: Callable[..., None]
) -> None:
    """Run `body(f, task, slot, *captured)` for each task below `tasks`, in parallel.

    `f` is the function of the body, in which each captured value of `function` is a value. The
    tasks have to follow from the work alone if results depend on them, not on the threads.
    Where the pool is busy, as inside another parallel loop, the calling thread runs all tasks. Each
    thread has one of `slots(function)` slots, `slot`, and memory for what is too large for its
    stack. If a signal has ended the loop, `function` leaves its innermost attempt, if it is in
    one.
    """
    module = function.module
    is_exported = function.context is not None
    params = [(POINTER, "context"), (I64, "task"), (I64, "slot"), (POINTER, "scratch")]
    outlined = module.function(
        f"{function.name}.task{len(function)}", params[:3] if is_exported else params
    )
    outlined.flags = function.flags
    context, task, slot = outlined.params[:3]
    memory = Value(function, POINTER, "%tasks")
    if is_exported:  # the memory of all threads is captured
        captured = [*captured, memory]
    function.optimised = False  # only the tasks take time
    start = function.length()
    block = function.stack.shared(sum(map(_words, captured)))
    inside, offset = [], 0
    for value in captured:
        function.store(value, function.element(block, 8 * offset, I8), 8)
        source = outlined.element(context, 8 * offset, I8)
        inside.append(outlined.load(value.type, source, 8))
        inside[-1].multiple = value.multiple
        offset += _words(value)
    place = outlined.slot() if is_exported else None
    outlined.stack.extend("%scratch", place)
    memory = inside.pop() if is_exported else memory
    body(outlined, task, slot, *inside)
    outlined.ret()
    function.task_bytes = max(function.task_bytes, outlined.stack.more)
    if place is not None:
        elsewhere = [*place]  # what follows the address of the memory there
        place.clear()
        share = outlined.at(place, lambda: slot * outlined.stack.more)
        place += [f"  %scratch = getelementptr i8, {memory}, {share}", *elsewhere]
        _run_tasks(function, outlined.name, block, function.index(tasks))
        return
    run = function.load(POINTER, _pool(function))
    count = function.index(tasks)
    arguments = f"ptr @{outlined.name}, {block}, {count}, i64 {outlined.stack.more}"
    status = function.new(I32, f"call i32 {run.name}({arguments})")
    if function.is_attempted:
        function.leave(function.compare("ne", status, 0))
    if [v.name for v in captured] == [p.name for p in function.params] and count.name.isdigit():
        code = EntryCode(outlined.name, int(count.name), outlined.stack.more)
        function.note_tasks(start, code)


RUN, OWNER, COUNT, INDEX, SIZE, WEIGHTS = range(6)
"""The words of the context of a call of an exported function, which is on the stack of that.

The caller's function that runs tasks in parallel, or null, its first argument, and the number of
its threads; the index and the size that an error is about; the address of the constants.
"""


def context_word(f: Function, number: int) -> Value:
    """The address of a word of the context."""
    assert f.context is not None
    return f.element(f.context, number, I64)


def _run_tasks(f: Function, body: str, work: Value, count: Value) -> None:
    """Run the tasks of an exported function by the caller's function, or one after the other."""
    run = f.load(POINTER, context_word(f, RUN), 8)

    def alone() -> None:
        def task(number: Value) -> None:
            f.put(f"call void @{body}({work}, {number}, i64 0)")

        f.loop(0, count, 1, [], task)

    def together() -> None:
        owner = f.load(POINTER, context_word(f, OWNER), 8)
        f.put(f"call void {run.name}({owner}, ptr @{body}, {work}, {count})")

    f.branch(f.new(BOOL, f"icmp eq {run}, null"), alone, together)


def slots(function: Function) -> Value:
    """The number of threads that run the tasks of a parallel loop."""
    return function.load(I64, function.element(_pool(function), 1, I64))


def _pool(function: Function) -> Value:
    if function.context is not None:
        return context_word(function, COUNT - 1)  # the number of threads is the next word
    function.module.words(POOL, 2)
    return Value(function, POINTER, f"@{POOL}")


def _words(value: Value) -> int:
    """The number of words of 8 bytes that hold a value."""
    return -(-max(8, value.type.bits) * value.type.lanes // 64)
