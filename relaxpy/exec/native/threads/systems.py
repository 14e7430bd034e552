"""Threads, time and memory of each system, as native code asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from typing_extensions import override

from relaxpy.exec.machine.platforms import System
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.threads.code import at, invoke

MASK_BYTES: Final = 128
"""The bytes of a set of CPUs."""


class Threads:
    """Threads of POSIX; `functions` are those of C by the variables with their addresses."""

    functions: Mapping[str, str] = MappingProxyType({})

    def current(self, f: Function) -> Value:
        """The number of the calling thread as `threading.get_ident` knows it."""
        return invoke(f, "current", I64)

    def number(self, f: Function) -> Value:
        """The number of the calling thread as `threading.get_native_id` knows it."""
        return self.current(f)

    def create(self, f: Function, worker: Value, argument: Value) -> None:
        """Start a thread that calls a function with a pointer."""
        thread = f.alloca(I64, 1)
        invoke(f, "create", I32, thread, f.const(POINTER, 0), worker, argument)

    def give_way(self, f: Function) -> None:
        """Let another thread run."""
        invoke(f, "yield", I32)

    def wait(self, f: Function, place: Value, word: Value) -> None:
        """Sleep as long as there is this number of 32 bits at a place, or shorter."""

    def wake(self, f: Function, place: Value, most: Value) -> None:
        """Wake the threads that wait at a place, at least `most` of them."""

    def now(self, f: Function, system: System) -> Value:
        """Nanoseconds of the clock that Python's perf_counter reads."""
        time = f.alloca(I64, 2)
        f.call("clock_gettime", I32, f.const(I32, system.clock or 0), time)
        return f.load(I64, time) * 10**9 + f.load(I64, f.element(time, 1, I64))


class Futex(Threads):
    """Threads of Linux, by system calls."""

    functions = MappingProxyType(
        {
            "current": "pthread_self",
            "create": "pthread_create",
            "yield": "sched_yield",
            "syscall": "syscall",
            "processor": "sched_getcpu",
        }
    )

    def call(self, f: Function, name: str, *args: Value) -> Value:
        """The result of a system call."""
        number = f.index(f.module.platform.calls[name])
        return invoke(f, "syscall", I64, number, *args, params="(i64, ...)")

    @override
    def number(self, f: Function) -> Value:
        """The number of the calling thread."""
        return self.call(f, "gettid")

    @override
    def wait(self, f: Function, place: Value, word: Value) -> None:
        """Sleep as long as there is this number at a place, or shorter."""
        self.call(f, "futex", place, f.index(128), word, f.const(POINTER, 0))

    @override
    def wake(self, f: Function, place: Value, most: Value) -> None:
        """Wake as many threads that wait at a place."""
        self.call(f, "futex", place, f.index(129), f.cast("trunc", most, "i32"))

    def set_affinity(self, f: Function, thread: Value, mask: str) -> None:
        """Let a thread run on the CPUs of the set in a variable only."""
        self.call(f, "set_affinity", thread, f.index(MASK_BYTES), at(f, mask))

    def get_affinity(self, f: Function, mask: Value) -> Value:
        """Store the CPUs of the calling thread; a positive number if this was possible."""
        return self.call(f, "get_affinity", f.index(0), f.index(MASK_BYTES), mask)


class OsSync(Threads):
    """Threads of macOS, by functions that it has since version 14.4."""

    functions = MappingProxyType(
        {
            "current": "pthread_self",
            "number": "pthread_threadid_np",
            "create": "pthread_create",
            "yield": "sched_yield",
            "wait": "os_sync_wait_on_address",
            "wake": "os_sync_wake_by_address_all",
        }
    )

    @override
    def number(self, f: Function) -> Value:
        """The number of the calling thread."""
        number = f.alloca(I64, 1)
        invoke(f, "number", I32, f.const(POINTER, 0), number)
        return f.load(I64, number)

    @override
    def wait(self, f: Function, place: Value, word: Value) -> None:
        """Sleep as long as there is this number at a place, or shorter."""
        expected, flags = f.cast("zext", word, "i64"), f.const(I32, 0)
        invoke(f, "wait", I32, place, expected, f.index(4), flags)

    @override
    def wake(self, f: Function, place: Value, most: Value) -> None:
        """Wake all threads that wait at a place."""
        invoke(f, "wake", I32, place, f.index(4), f.const(I32, 0))


class WaitOnAddress(Threads):
    """Threads of Windows."""

    functions = MappingProxyType(
        {
            "current": "GetCurrentThreadId",
            "create": "CreateThread",
            "yield": "SwitchToThread",
            "wait": "WaitOnAddress",
            "wake": "WakeByAddressAll",
            "counter": "QueryPerformanceCounter",
            "frequency": "QueryPerformanceFrequency",
        }
    )

    @override
    def current(self, f: Function) -> Value:
        """The number of the calling thread."""
        return f.cast("zext", invoke(f, "current", I32), "i64")

    @override
    def create(self, f: Function, worker: Value, argument: Value) -> None:
        """Start a thread that calls a function with a pointer."""
        none, zero = f.const(POINTER, 0), f.const(I32, 0)
        invoke(f, "create", POINTER, none, f.index(0), worker, argument, zero, none)

    @override
    def wait(self, f: Function, place: Value, word: Value) -> None:
        """Sleep as long as there is this number at a place, or shorter."""
        expected = f.alloca(I32, 1)
        f.store(word, expected)
        invoke(f, "wait", I32, place, expected, f.index(4), f.const(I32, -1))

    @override
    def wake(self, f: Function, place: Value, most: Value) -> None:
        """Wake all threads that wait at a place."""
        invoke(f, "wake", VOID, place)

    @override
    def now(self, f: Function, system: System) -> Value:
        """Nanoseconds of the performance counter."""
        words = f.alloca(I64, 2)
        invoke(f, "counter", I32, words)
        invoke(f, "frequency", I32, f.element(words, 1, I64))
        count, per_second = f.load(I64, words), f.load(I64, f.element(words, 1, I64))
        seconds = f.arithmetic("udiv", count, per_second)
        rest = f.arithmetic("udiv", (count - seconds * per_second) * 10**9, per_second)
        return seconds * 10**9 + rest


_KINDS: Final[Mapping[Literal["futex", "os_sync", "WaitOnAddress", "none"], Threads]] = {
    "futex": Futex(),
    "os_sync": OsSync(),
    "WaitOnAddress": WaitOnAddress(),
    "none": Threads(),
}
FUNCTIONS: Final = tuple(dict.fromkeys(name for k in _KINDS.values() for name in k.functions))
"""The variables with addresses of C functions, of all systems."""


def threads_of(system: System) -> Threads:
    """The threads of a system."""
    return _KINDS[system.threads]


def new_pages(f: Function, size: Value, failed: Callable[[], None]) -> Value:
    """New memory of zeros; if there is none, `f` leaves its innermost attempt after `failed`."""
    kind = f.module.platform.system.pages
    if kind == "VirtualAlloc":
        committed, writing = f.const(I32, 0x3000), f.const(I32, 0x04)
        none = f.const(POINTER, 0)
        memory = f.call("VirtualAlloc", POINTER, none, size, committed, writing)
        f.leave(f.compare("eq", memory, 0), failed)
        return memory
    options = tuple(f.const(I32, n) for n in (3, kind, -1))  # for reading and writing
    memory = f.call("mmap", POINTER, f.const(POINTER, 0), size, *options, f.index(0))
    f.leave(f.compare("eq", f.cast("ptrtoint", memory, "i64"), -1), failed)
    return memory


def free_pages(f: Function, memory: Value, size: Value) -> None:
    """Free the memory of `new_pages`."""
    if f.module.platform.system.pages == "VirtualAlloc":
        f.call("VirtualFree", I32, memory, f.index(0), f.const(I32, 0x8000))
    else:
        f.call("munmap", I32, memory, size)
