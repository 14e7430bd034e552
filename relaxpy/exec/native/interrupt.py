"""Lets signals of Python interrupt loops of native code that may never end.

Every 256th iteration looks at the clock. Once a second it lets Python run the handlers of signals
that have arrived. If one of them raises, as that of Ctrl-C does, all loops end, the kernel reports
that it failed, and the entry of the kernel returns the exception to Python. Buffers then hold what
had been computed. As everywhere in Python, handlers run in the main thread alone.
"""

from __future__ import annotations

from typing import Final

from relaxpy.exec.native.interpreter import declare_python, python_text
from relaxpy.exec.native.llvm import I8, I64, Function, Value

_ITERATIONS: Final = 256
_POLL: Final = f"""\
define internal void @relaxpy.poll(ptr %failure, ptr %second) nounwind {{
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
  %raised = icmp ne i32 %failed, 0
  br i1 %raised, label %fail, label %done
fail:
  store i8 1, ptr %failure
  br label %done
done:
  ret void
}}
declare i64 @time(ptr)"""


class Interrupt:
    """What sets the byte `failure` of the function `f`, and leaves it, if a handler raises.

    It is created in a block of the function that runs before its loops.
    """

    def __init__(self, f: Function, failure: Value) -> None:
        declare_python(f.module)
        f.module.add_text(_POLL)
        self.function, self._failure = f, failure
        self._second, self._count = f.alloca(I64, 1), f.alloca(I64, 1)
        for word in (self._second, self._count):
            f.store(f.const(I64, 0), word)

    def poll(self) -> None:
        """Look for signals, once in many iterations."""
        f = self.function
        count = f.load(I64, self._count) + 1
        f.store(count, self._count)
        due = f.compare("eq", f.arithmetic("and", count, _ITERATIONS - 1), 0)

        def look() -> None:
            f.put(f"call void @relaxpy.poll({self._failure}, {self._second})")
            f.leave(f.compare("ne", f.load(I8, self._failure), 0))

        f.branch(due, look)
