"""Errors of kernels by table: native code reports the number of an obligation that does not hold.

These are the obligations that are tested after the first write. The function of a kernel has a
record: the first task that failed, a lock, the number of its obligation, and the index and the size
that do not fit. Before it returns, it passes these numbers to the table of its module, which raises
the error, and the entry of the kernel returns it to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Final

from relaxpy.errors import SPAN_OF_LINE, RuntimeCheckError
from relaxpy.exec.native.calls.interpreter import FAILURES, TYPE, declare_python, python_text
from relaxpy.exec.native.llvm.writer import I32, I64, Function, Operand, Type, Value
from relaxpy.exec.native.threads.code import INDEX, SIZE
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.runtime.scalar import divisor
from relaxpy.ir.tir.prim_func import PrimFunc

_NONE: Final = (1 << 63) - 1
"""The task that failed if none did."""
_REPORT: Final = """\
define internal void @relaxpy.report(ptr %record, i64 %task, i64 %n, i64 %index, i64 %size)
  cold nounwind {
entry:
  %lock = getelementptr i64, ptr %record, i64 1
  br label %wait
wait:
  %before = atomicrmw xchg ptr %lock, i64 1 acquire
  %busy = icmp ne i64 %before, 0
  br i1 %busy, label %wait, label %compare
compare:
  %least = load atomic i64, ptr %record monotonic, align 8
  %is_less = icmp slt i64 %task, %least
  br i1 %is_less, label %replace, label %done
replace:
  store atomic i64 %task, ptr %record monotonic, align 8
  %n_at = getelementptr i64, ptr %record, i64 2
  store i64 %n, ptr %n_at
  %index_at = getelementptr i64, ptr %record, i64 3
  store i64 %index, ptr %index_at
  %size_at = getelementptr i64, ptr %record, i64 4
  store i64 %size, ptr %size_at
  br label %done
done:
  store atomic i64 0, ptr %lock release, align 8
  ret void
}"""
_RAISE: Final = f"""\
@relaxpy.format = internal constant [4 x i8] c"LLL\\00"

define internal void @relaxpy.raise(ptr %record) cold nounwind {{
entry:
  %task = load i64, ptr %record
  %none = icmp eq i64 %task, {_NONE}
  %table = load ptr, ptr @{FAILURES}
  %absent = icmp eq ptr %table, null
  %silent = or i1 %none, %absent
  br i1 %silent, label %done, label %lock
lock:
  %ensure = load ptr, ptr {python_text("PyGILState_Ensure")}
  %state = call i32 %ensure()
  %occurred = load ptr, ptr {python_text("PyErr_Occurred")}
  %other = call ptr %occurred()
  %interrupted = icmp ne ptr %other, null
  br i1 %interrupted, label %unlock, label %call
call:
  %n_at = getelementptr i64, ptr %record, i64 2
  %n = load i64, ptr %n_at
  %index_at = getelementptr i64, ptr %record, i64 3
  %index = load i64, ptr %index_at
  %size_at = getelementptr i64, ptr %record, i64 4
  %size = load i64, ptr %size_at
  %function = load ptr, ptr {python_text("PyObject_CallFunction")}
  %error = call ptr (ptr, ptr, ...) %function(
    ptr %table, ptr @relaxpy.format, i64 %n, i64 %index, i64 %size)
  %failed = icmp eq ptr %error, null
  br i1 %failed, label %unlock, label %raise
raise:
  %type_at = getelementptr i8, ptr %error, i64 {TYPE}
  %type = load ptr, ptr %type_at
  %set = load ptr, ptr {python_text("PyErr_SetObject")}
  call void %set(ptr %type, ptr %error)
  %forget = load ptr, ptr {python_text("Py_DecRef")}
  call void %forget(ptr %error)
  br label %unlock
unlock:
  %release = load ptr, ptr {python_text("PyGILState_Release")}
  call void %release(i32 %state)
  br label %done
done:
  ret void
}}"""
_STATUS: Final = f"""\
define internal i32 @relaxpy.status(ptr %record, ptr %context) cold nounwind {{
entry:
  %task = load i64, ptr %record
  %none = icmp eq i64 %task, {_NONE}
  br i1 %none, label %unknown, label %found
unknown:
  ret i32 1
found:
  %index_at = getelementptr i64, ptr %record, i64 3
  %index = load i64, ptr %index_at
  %failed_index = getelementptr i64, ptr %context, i64 {INDEX}
  store i64 %index, ptr %failed_index
  %size_at = getelementptr i64, ptr %record, i64 4
  %size = load i64, ptr %size_at
  %failed_size = getelementptr i64, ptr %context, i64 {SIZE}
  store i64 %size, ptr %failed_size
  %n_at = getelementptr i64, ptr %record, i64 2
  %n = load i64, ptr %n_at
  %status = trunc i64 %n to i32
  ret i32 %status
}}"""
"""The number of the obligation that failed; its index and its size go to the context of a call."""


def _fail(kernel: str, obligation: Obligation, index: int, size: int) -> None:
    from relaxpy.exec.numpy.runtime import checked_index
    from relaxpy.exec.runtime.arguments import fail

    if obligation.buffer is not None:
        if str(obligation.index.dtype) == "uint64":
            index %= 1 << 64
        checked_index(index, size, obligation.dimension, f"{kernel}: {obligation.buffer.name}")
    elif obligation.message is not None:
        fail(kernel, obligation.message)
    else:
        divisor(0)


class FailureTable:
    """The obligations that the kernels of a module report, by number."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, PrimFunc, Obligation]] = []

    def add(self, kernel: str, func: PrimFunc, obligation: Obligation) -> int:
        """The number of an obligation of a kernel."""
        self.entries.append((kernel, func, obligation))
        return len(self.entries) - 1

    def __call__(self, number: int, index: int, size: int) -> RuntimeCheckError:
        """The error of an obligation, as the NumPy kernel would raise it."""
        kernel, func, obligation = self.entries[number]
        span = obligation.span or func.span
        # The position of the running line is that of the statement, as in a NumPy kernel.
        run = FunctionType(_fail.__code__, _fail.__globals__ | {SPAN_OF_LINE: lambda line: span})
        try:
            run(kernel, obligation, index, size)
        except RuntimeCheckError as error:
            return error
        raise AssertionError("an index inside of its buffer was reported")


class Failures:
    """The failures that the function `f` of a kernel or of its tasks writes to `record`."""

    def __init__(
        self, f: Function, add: Callable[[Obligation], int], record: Value, task: Operand = 0
    ) -> None:
        self.function, self.add, self.record, self.task = f, add, record, task

    @classmethod
    def of_kernel(cls, f: Function, add: Callable[[Obligation], int]) -> Failures:
        """Those of a kernel; `add` returns the number of an obligation."""
        f.module.add_text(_REPORT)
        if f.context is not None:
            f.module.add_text(_STATUS)
        else:
            declare_python(f.module)
            f.module.words(FAILURES, 1)
            f.module.add_text(_RAISE)
        record = f.alloca(I64, 5)
        f.store(f.const(I64, _NONE), record)
        f.store(f.const(I64, 0), f.element(record, 1, I64))
        return cls(f, add, record)

    def of_task(self, f: Function, record: Value, task: Value) -> Failures:
        """Those of a task, in its function."""
        return Failures(f, self.add, record, task)

    def leave(self, obligation: Obligation, bad: Value, index: Value, size: Value) -> None:
        """Report an obligation and leave if it is violated, in any lane."""
        f = self.function
        if bad.name == "false":
            return
        number = f.const(I64, self.add(obligation))

        def report() -> None:
            values = (
                self.record,
                f.index(self.task),
                number,
                *(_first(f, v, bad) for v in (index, size)),
            )
            f.put(f"call void @relaxpy.report({', '.join(map(str, values))})")

        f.leave(bad, report)

    def leave_if_failed(self) -> None:
        """Leave if a task has failed; a task itself, if that is one before it."""
        f = self.function
        least = f.new(I64, f"load atomic i64, {self.record} monotonic, align 8")
        limit = self.task if isinstance(self.task, Value) else _NONE
        f.leave(f.compare("slt", least, limit))

    def status(self) -> Value:
        """Not 0: Python raises the error that was reported, if any, or else it has a number."""
        f = self.function
        if f.context is not None:
            return f.new(I32, f"call i32 @relaxpy.status({self.record}, {f.context})")
        f.put(f"call void @relaxpy.raise({self.record})")
        return f.const(I32, 1)


def _first(f: Function, value: Value, bad: Value) -> Value:
    """The value in the first lane in which `bad` holds."""
    lanes = bad.type.lanes
    if value.type.lanes == 1:
        return value
    bits = f.cast("zext", f.new(Type(f"i{lanes}"), f"bitcast {bad} to i{lanes}"), "i64")
    f.module.declare("llvm.cttz.i64", I64, ["i64", "i1 immarg"])
    lane = f.new(I64, f"call i64 @llvm.cttz.i64({bits}, i1 false)")
    return f.new(I64, f"extractelement {value}, {lane}")
