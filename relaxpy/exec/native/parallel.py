"""Writes parallel loops: a function for the body, and a call that runs it for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relaxpy.exec.native.llvm import I8, I64, POINTER, Function, Operand, Value

POOL: Final = "relaxpy_pool"
"""The variable of a module with the address of the function of the pool, and its threads."""
_RUN: Final = f"""\
@{POOL} = global [2 x i64] [i64 0, i64 1]
define internal void @relaxpy.parallel(ptr %body, ptr %context, i64 %tasks)
    nounwind noinline optnone {{
entry:
  %run = load ptr, ptr @{POOL}
  %alone = icmp eq ptr %run, null
  br i1 %alone, label %head, label %pool
pool:
  call void %run(ptr %body, ptr %context, i64 %tasks)
  ret void
head:
  %task = phi i64 [ 0, %entry ], [ %next, %do ]
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %do, label %done
do:
  call void %body(ptr %context, i64 %task, i64 0)
  %next = add i64 %task, 1
  br label %head
done:
  ret void
}}"""


def parallel(
    function: Function,
    tasks: Operand,
    captured: Sequence[Value],
    body: Callable[..., None],
) -> None:
    """`body(f, task, *captured)` for each task from 0 up to `tasks`, in any order, at a time.

    `f` is the function of the body, in which each captured value of `function` is a value. The
    number of tasks has to follow from the work alone, so that results do not depend on threads.
    Where the pool is busy, as inside another parallel loop, the calling thread runs all tasks. The
    last parameter of `f` is the slot of its thread, of which there are `slots(function)`.
    """
    module = function.module
    module.add_text(_RUN)
    outlined = module.function(
        f"{function.name}.task{len(module.functions)}",
        [(POINTER, "context"), (I64, "task"), (I64, "slot")],
        internal=True,
    )
    outlined.flags = function.flags
    context, task, _ = outlined.params
    function.optimised = False  # what takes time are the tasks
    block = function.alloca(I64, sum(map(_words, captured)) or 1)
    inside, offset = [], 0
    for value in captured:
        function.store(value, function.element(block, 8 * offset, I8), 8)
        source = outlined.element(context, 8 * offset, I8)
        inside.append(outlined.load(value.type, source, 8))
        offset += _words(value)
    body(outlined, task, *inside)
    outlined.ret()
    arguments = f"ptr @{outlined.name}, {block}, {function.index(tasks)}"
    function.put(f"call void @relaxpy.parallel({arguments})")


def slots(function: Function) -> Value:
    """The number of threads that run the tasks of a parallel loop."""
    module = function.module
    module.add_text(_RUN)
    return function.load(I64, function.element(Value(function, POINTER, f"@{POOL}"), 1, I64))


def _words(value: Value) -> int:
    """The number of words of 8 bytes that hold a value."""
    return -(-max(8, value.type.bits) * value.type.lanes // 64)
