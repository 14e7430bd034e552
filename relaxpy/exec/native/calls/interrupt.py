"""Lets Python signals interrupt loops of native code that may take long, or never end.

Such are `while` loops, and others that may take long, also in tasks of the thread pool, which
itself looks for signals between these (`pool.py`). Long loops are strip-mined. After some thousand
iterations of any of the loops, the next one to end a strip or its body reads the clock. Once a
second it lets Python run the handlers of pending signals. If one of them raises, as that of Ctrl-C
does, all loops end, the kernel reports that it failed, and the entry of the kernel returns the
exception to Python. Buffers then hold partial results. As everywhere in Python, handlers run in the
main thread alone.
"""

from __future__ import annotations

from typing import Final

from relaxpy.exec.machine.tuning import Signals
from relaxpy.exec.native.calls.interpreter import declare_python, python_text
from relaxpy.exec.native.llvm.writer import I32, I64, Function, Operand, Value

_POLL: Final = f"""\
define internal i32 @relaxpy.poll(ptr %second) nounwind {{
entry:
  %ensure = load ptr, ptr {python_text("PyGILState_Ensure")}
  %absent = icmp eq ptr %ensure, null
  br i1 %absent, label %done, label %clock
clock:
  %now = call i64 @time(ptr null)
  %last = load i64, ptr %second
  %same = icmp eq i64 %now, %last
  br i1 %same, label %done, label %ask
ask:
  store i64 %now, ptr %second
  %state = call i32 %ensure()
  %check = load ptr, ptr {python_text("PyErr_CheckSignals")}
  %failed = call i32 %check()
  %release = load ptr, ptr {python_text("PyGILState_Release")}
  call void %release(i32 %state)
  ret i32 %failed
done:
  ret i32 0
}}
declare i64 @time(ptr)"""


class Interrupt:
    """The exit from the function `f` if a signal handler raises.

    It is created in a block of the function that runs before its loops. In tasks, only the thread
    with `slot` 0 asks Python; the others leave if it has stored a negative number at `record`.
    """

    def __init__(self, f: Function, slot: Value | None = None, record: Value | None = None) -> None:
        declare_python(f.module)
        f.module.add_text(_POLL)
        self.function = f
        self._second, self._count = f.alloca(I64, 1), f.alloca(I64, 1)
        self._slot, self._record = slot, record
        f.store(f.const(I64, 0), self._count)
        # There are many tasks; they need not ask Python at once.
        now = f.const(I64, 0) if slot is None else f.new(I64, "call i64 @time(ptr null)")
        f.store(now, self._second)

    def poll(self, iterations: Operand = 1) -> None:
        """Poll for signals once in many iterations, after these `iterations`."""
        f = self.function
        count = f.load(I64, self._count) + iterations
        f.store(count, self._count)
        due = f.compare("sge", count, Signals.ITERATIONS)

        def look() -> None:
            f.store(f.const(I64, 0), self._count)
            if self._slot is None:
                [status] = ask()
            else:
                [status] = f.branch(f.compare("eq", self._slot, 0), ask, told)
            f.leave(f.compare("ne", status, 0), mark)

        def ask() -> list[Value]:
            return [f.new(I32, f"call i32 @relaxpy.poll({self._second})")]

        def told() -> list[Value]:
            assert self._record is not None
            least = f.new(I64, f"load atomic i64, {self._record} monotonic, align 8")
            return [f.cast("zext", f.compare("slt", least, 0), I32.element)]

        def mark() -> None:
            if self._record is not None:
                f.put(f"store atomic i64 -1, {self._record} monotonic, align 8")

        f.branch(due, look)
