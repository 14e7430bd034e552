"""Writes parallel loops: a function for the body, and a call that runs it for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relaxpy.exec.native.llvm.function import I8, I32, I64, POINTER, Function, Operand, Value

POOL: Final = "relaxpy_pool"
"""The variable of a module with the address of the pool's function, and its number of threads."""


def parallel(
    function: Function, tasks: Operand, captured: Sequence[Value], body: Callable[..., None]
) -> None:
    """Run `body(f, task, slot, *captured)` for each task below `tasks`, in parallel.

    `f` is the function of the body, in which each captured value of `function` is a value. The
    number of tasks has to follow from the work alone, so that results do not depend on threads.
    Where the pool is busy, as inside another parallel loop, the calling thread runs all tasks. Each
    thread has one of `slots(function)` slots, `slot`, and memory for what is too large for its
    stack. If a signal has ended the loop, `function` leaves its innermost attempt, if it is in
    one.
    """
    module = function.module
    outlined = module.function(
        f"{function.name}.task{len(module.functions)}",
        [(POINTER, "context"), (I64, "task"), (I64, "slot"), (POINTER, "scratch")],
    )
    outlined.flags = function.flags
    context, task, slot, scratch = outlined.params
    outlined.stack.extend(scratch.name)
    function.optimised = False  # only the tasks take time
    start = function.length()
    block = function.stack.shared(sum(map(_words, captured)))
    inside, offset = [], 0
    for value in captured:
        function.store(value, function.element(block, 8 * offset, I8), 8)
        source = outlined.element(context, 8 * offset, I8)
        inside.append(outlined.load(value.type, source, 8))
        offset += _words(value)
    body(outlined, task, slot, *inside)
    outlined.ret()
    run = function.load(POINTER, _pool(function))
    count = function.index(tasks)
    arguments = f"ptr @{outlined.name}, {block}, {count}, i64 {outlined.stack.more}"
    status = function.new(I32, f"call i32 {run.name}({arguments})")
    if function.is_attempted:
        function.leave(function.compare("ne", status, 0))
    if [v.name for v in captured] == [p.name for p in function.params] and count.name.isdigit():
        function.note_tasks(start, (outlined.name, int(count.name), outlined.stack.more))


def slots(function: Function) -> Value:
    """The number of threads that run the tasks of a parallel loop."""
    return function.load(I64, function.element(_pool(function), 1, I64))


def _pool(function: Function) -> Value:
    function.module.words(POOL, 2)
    return Value(function, POINTER, f"@{POOL}")


def _words(value: Value) -> int:
    """The number of words of 8 bytes that hold a value."""
    return -(-max(8, value.type.bits) * value.type.lanes // 64)
