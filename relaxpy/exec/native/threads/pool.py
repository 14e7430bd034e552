"""The thread pool of the process, as native code: threads that run the tasks of parallel loops.

A loop opens a job (`jobs.py`), which workers join. They wait for jobs: they spin for about a
quarter of a millisecond, then sleep. A job ends when all its tasks are done and each worker that
joined has left: nobody waits for a worker that did not wake in time. The workers start at the first
loop, also in a forked child. Each thread of a loop has a slot, the number of its scratch memory:
the thread that runs it has slot 0. A loop also says how many bytes each thread needs beside its
stack, which may be small. Workers keep theirs for later loops. They round as the thread that runs
the loop does, and take subnormal numbers for zeros if it does (`torch.set_flush_denormal`): all
tasks compute the same.

Between two tasks the main Python thread reads the clock. Once a second it lets Python run the
handlers of pending signals. If one raises, as that of Ctrl-C does, no other task begins. A loop is
an error in a child that a handler forks: tasks of the workers are lost.

After a pause Linux may wake a worker on the CPU of the waking thread, where the worker has to wait.
A loop therefore excludes its own CPU from the affinity of sleeping workers until they are awake.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Final

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Parallel
from relaxpy.exec.native.llvm.writer import BOOL, I8, I32, I64, POINTER, VOID, Function, Type, Value
from relaxpy.exec.native.threads.code import address_of, at, exchanged, invoke, read
from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.native.threads.jobs import (
    BODY,
    BYTES,
    CODE as CODE,
    CONTEXT,
    CONTROL,
    CROWDED,
    DONE,
    FAILED,
    OWNER,
    PYTHON,
    TASKS,
    Records,
    close_job,
    field,
    forget_caller,
    job_of,
    leave_done,
    note_caller,
    open_job,
    pause,
    system_threads as _threads,
    threads_of_job,
)
from relaxpy.exec.native.threads.systems import MASK_BYTES, Futex, threads_of
from relaxpy.exec.runtime.threads import ENTRIES, ring, thread_count
from relaxpy.ir.core.fork_lock import Late

_FORKED: Final = (
    "a signal handler has forked the process during a parallel loop, whose other threads are not in"
    " the child: end the child in the handler"
)


def _place(f: Function, slot: Value, field: int) -> Value:
    """The address of a field of a slot's thread."""
    return f.element(read(f, "places", POINTER), slot * 3 + field, I32)


def _note_control(f: Function, place: Value) -> None:
    """Store how the calling thread rounds, for the workers of its loop."""
    if f.module.platform.architecture.control == "mxcsr":
        f.put(f"call void @llvm.x86.sse.stmxcsr({place})")
    else:
        f.store(f.new(I64, "call i64 @llvm.aarch64.get.fpcr()"), place)


def _take_control(f: Function, place: Value) -> None:
    """Round as the thread whose loop this worker has joined."""
    if f.module.platform.architecture.control == "mxcsr":
        f.put(f"call void @llvm.x86.sse.ldmxcsr({place})")
    else:
        f.put(f"call void @llvm.aarch64.set.fpcr({f.load(I64, place)})")


@CODE.function(I32)
def _interrupted(f: Function) -> Value:
    """Once a second, let Python run the handlers of signals: 1 if one of them raises."""

    def no() -> list[Value]:
        return [f.const(I32, 0)]

    def in_main_thread() -> list[Value]:
        now = f.call("time", I64, f.const(POINTER, 0))
        return f.branch(f.compare("eq", now, read(f, "second")), no, lambda: ask(now))

    def ask(now: Value) -> list[Value]:
        f.store(now, at(f, "second"))
        state = invoke(f, "ensure", I32)
        failed = invoke(f, "check", I32)
        invoke(f, "release", VOID, state)
        return [f.cast("zext", f.compare("ne", failed, 0), "i32")]

    is_main = f.compare("eq", _threads(f).current(f), read(f, "main"))
    [result] = f.branch(is_main, in_main_thread, no)
    return result


@CODE.function(I64)
def _now(f: Function) -> Value:
    """Nanoseconds of the clock that Python's perf_counter reads."""
    return _threads(f).now(f, f.module.platform.system)


@CODE.function(I32, I64, I64, I64, POINTER, I64)
def _share(f: Function, number: Value, *arguments: Value) -> Value:
    """A worker's share of a job, as `work`: its time is noted if a thread is profiled."""
    *others, thread = arguments
    times = read(f, "times", POINTER)

    def measured() -> list[Value]:
        owner = f.load(I64, field(f, job_of(f, number), OWNER))
        start = f.call("now", I64)
        status = f.call("work", I32, number, *others)
        stop = f.call("now", I64)
        count = f.element(times, 1, I64)
        index = f.new(I64, f"atomicrmw add {count}, i64 1 monotonic")
        first = f.arithmetic("and", index, ENTRIES - 1) * 4 + 2
        for n, value in enumerate((owner, thread, start, stop)):
            f.store(value, f.element(times, first + n, I64))
        return [status]

    def unmeasured() -> list[Value]:
        return [f.call("work", I32, number, *others)]

    [status] = f.branch(_is_profiled(f), measured, unmeasured)
    return status


def _is_profiled(f: Function) -> Value:
    times = read(f, "times", POINTER)
    return f.compare("ne", f.new(I64, f"load atomic i64, {times} monotonic, align 8"), 0)


@CODE.function(POINTER, POINTER)
def _worker(f: Function, argument: Value) -> Value:
    held_at, size_at = f.alloca(POINTER, 1), f.alloca(I64, 1)
    f.store(f.const(POINTER, 0), held_at)
    f.store(f.index(0), size_at)
    slot = f.cast("ptrtoint", argument, "i64")
    asleep, kept_away = _place(f, slot, 1), _place(f, slot, 2)
    thread = _threads(f).number(f)
    f.store(f.cast("trunc", thread, "i32"), _place(f, slot, 0))

    def look(last: Value, spins: Value) -> list[Value]:
        state = f.new(I64, "load atomic i64, ptr @state acquire, align 8")

        def search() -> list[Value]:
            found = f.call("join", I64, state)
            is_found = f.compare("sge", found, 0)
            return f.branch(is_found, lambda: joined(state, found), lambda: [state, spins + 1])

        is_same = f.compare("eq", state, last)
        return f.branch(is_same, lambda: wait(state, spins + 1), search)

    def joined(state: Value, found: Value) -> list[Value]:
        number, order = (f.arithmetic(n, found, v) for n, v in (("lshr", 32), ("and", 0xFFFFFFFF)))
        job = job_of(f, number)
        size = f.load(I64, field(f, job, BYTES))

        def grow() -> list[Value]:
            invoke(f, "give", VOID, f.load(POINTER, held_at))
            memory = invoke(f, "take", POINTER, size)
            f.store(memory, held_at)
            f.store(f.select(f.compare("eq", memory, 0), f.index(0), size), size_at)
            return [f.compare("ne", memory, 0)]

        def share() -> list[Value]:
            _take_control(f, field(f, job, CONTROL))
            work = number, slot, order, f.load(POINTER, held_at), thread

            def again(_: Value) -> list[Value]:
                status = f.call("share", I32, *work)
                is_crowded = f.compare("eq", status, CROWDED)
                return f.branch(is_crowded, make_room, leave)

            f.while_loop([f.const(I32, 0)], lambda left: f.compare("eq", left, 0), again)
            return [f.index(-1)]  # there may be another job

        def make_room() -> list[Value]:
            return [f.call("leave", I32, number)]

        def leave() -> list[Value]:
            leave_done(f, number)
            return [f.const(I32, 1)]

        def give_up() -> list[Value]:
            leave_done(f, number)
            return [state]

        is_enough = f.compare("sle", size, f.load(I64, size_at))
        [is_ready] = f.branch(is_enough, lambda: [f.const(BOOL, 1)], grow)
        [last] = f.branch(is_ready, share, give_up)
        return [last, f.index(0)]

    def return_to_all(f: Function) -> None:
        if isinstance(threads := _threads(f), Futex):
            threads.set_affinity(f, f.index(0), "allowed")

    def wait(state: Value, spins: Value) -> list[Value]:
        def rest() -> list[Value]:
            pause(f)
            return [state, spins]

        def sleep() -> list[Value]:
            f.put("atomicrmw add ptr @sleepers, i32 1 seq_cst")
            word = f.cast("trunc", f.arithmetic("lshr", state, 32), "i32")
            f.put(f"store atomic i32 1, {asleep} release, align 4")  # after the thread's number
            _threads(f).wait(f, _upper(f), word)
            f.put(f"store atomic i32 0, {asleep} monotonic, align 4")
            f.put("atomicrmw sub ptr @sleepers, i32 1 seq_cst")
            kept = f.new(I32, f"atomicrmw xchg {kept_away}, i32 0 acquire")
            f.branch(f.compare("ne", kept, 0), lambda: return_to_all(f))
            return [state, f.index(0)]

        return f.branch(f.compare("sgt", spins, Parallel.SPINS), sleep, rest)

    f.while_loop([f.index(-1), f.index(0)], lambda *_: f.const(BOOL, 1), look)
    return f.const(POINTER, 0)


def _upper(f: Function) -> Value:
    """The address of the number of jobs so far, for which workers wait."""
    return f.element(at(f, "state"), 4, I8)


@CODE.function(VOID)
def _start(f: Function) -> None:
    def create(slot: Value) -> None:
        argument = f.cast("inttoptr", slot, "ptr")
        _threads(f).create(f, at(f, "worker"), argument)

    def start() -> None:
        f.loop(1, read(f, "workers") + 1, 1, [], create)

    f.branch(_is_first(f, "started"), start)


def _is_first(f: Function, name: str) -> Value:
    """True if a variable was 0; it is 1 now."""
    return exchanged(f, at(f, name), f.const(I32, 0), f.const(I32, 1), "acquire")


@CODE.function(VOID)
def _make_way(f: Function) -> None:
    """Exclude this CPU from the affinity of sleeping workers, if there is another one."""
    threads = _threads(f)
    if not isinstance(threads, Futex):
        return
    allowed, elsewhere = at(f, "allowed"), at(f, "elsewhere")
    size = threads.get_affinity(f, allowed)

    def clear() -> None:
        copied = f.index(MASK_BYTES), f.const(BOOL, 0)
        f.call("llvm.memcpy.p0.p0.i64", VOID, elsewhere, allowed, *copied)
        here = f.cast("zext", invoke(f, "processor", I32), "i64")
        byte = f.element(elsewhere, f.arithmetic("lshr", here, 3), I8)
        bit = f.arithmetic("shl", f.index(1), f.arithmetic("and", here, 7))
        others = f.arithmetic("xor", f.cast("trunc", bit, "i8"), -1)
        f.store(f.arithmetic("and", f.load(I8, byte), others), byte)
        bits = f.load(Type(f"i{8 * MASK_BYTES}"), elsewhere, 8)
        f.branch(f.compare("ne", bits, 0), all_workers)

    def all_workers() -> None:
        f.loop(1, read(f, "workers") + 1, 1, [], look)

    def look(slot: Value) -> None:
        asleep = f.new(I32, f"load atomic i32, {_place(f, slot, 1)} acquire, align 4")
        f.branch(f.compare("ne", asleep, 0), lambda: move(slot))

    def move(slot: Value) -> None:
        thread = f.cast("sext", f.load(I32, _place(f, slot, 0)), "i64")
        f.put(f"store atomic i32 1, {_place(f, slot, 2)} release, align 4")
        threads.set_affinity(f, thread, "elsewhere")

    f.branch(f.compare("sgt", size, 0), clear)


@CODE.function(I32, POINTER, POINTER, I64, I64)
def _run(f: Function, body: Value, context: Value, tasks: Value, size: Value) -> Value:
    """1 if a signal ended the loop before all tasks were done, or there is not enough memory."""

    def run(held: Value) -> list[Value]:
        return [f.call("run_with", I32, body, context, tasks, size, held)]

    def reserve() -> list[Value]:
        held = invoke(f, "take", POINTER, size)
        return f.branch(f.compare("eq", held, 0), fail, lambda: run_and_give(held))

    def run_and_give(held: Value) -> list[Value]:
        status = run(held)
        invoke(f, "give", VOID, held)
        return status

    def fail() -> list[Value]:
        state = invoke(f, "ensure", I32)
        invoke(f, "no_memory", POINTER)
        invoke(f, "release", VOID, state)
        return [f.const(I32, 1)]

    [status] = f.branch(f.compare("eq", size, 0), lambda: run(f.const(POINTER, 0)), reserve)
    return status


@CODE.function(I32, POINTER, POINTER, I64, I64, POINTER)
def _run_with(
    f: Function, body: Value, context: Value, tasks: Value, size: Value, held: Value
) -> Value:
    def alone() -> list[Value]:
        def run(task: Value) -> None:
            f.put(f"call void {body.name}({context}, {task}, i64 0, {held})")
            f.leave(f.compare("ne", f.call("interrupted", I32), 0))

        def all_tasks() -> list[Value]:
            f.loop(0, tasks, 1, [], run)
            return [f.const(I32, 0)]

        return f.attempt(all_tasks, lambda: [f.const(I32, 1)])

    def together() -> list[Value]:
        number, forks = f.call("reserve", I64), read(f, "forks")
        is_reserved = f.compare("sge", number, 0)
        return f.branch(is_reserved, lambda: shared(number, forks), lambda: counted(forks))

    def counted(forks: Value) -> list[Value]:
        note_caller(f)
        status = alone()
        f.branch(f.compare("eq", read(f, "forks"), forks), lambda: forget_caller(f))
        return status

    def start() -> None:
        f.call("start", VOID)

    def shared(number: Value, forks: Value) -> list[Value]:
        f.branch(f.compare("eq", read(f, "started", I32), 0), start)
        job = job_of(f, number)
        values = {BODY: body, CONTEXT: context, TASKS: tasks, BYTES: size}
        for word, value in values.items():
            f.store(value, field(f, job, word))
        _note_control(f, field(f, job, CONTROL))

        def note_owner() -> None:
            f.store(_threads(f).number(f), field(f, job, OWNER))

        f.branch(_is_profiled(f), note_owner)
        state = f.new(I64, "load atomic i64, ptr @state monotonic, align 8")
        threads = f.intrinsic("smax", threads_of_job(f, number, state + 1), 1)
        closed = open_job(f, number, threads)
        note_caller(f, opens=True)
        most = f.intrinsic("smin", tasks, threads) - 1
        sleepers = f.new(I32, "load atomic i32, ptr @sleepers seq_cst, align 4")
        has_sleepers = f.arithmetic("and", f.compare("sgt", sleepers, 0), f.compare("sgt", most, 0))
        f.branch(has_sleepers, lambda: wake(most))
        status = f.call("work", I32, number, f.index(0), f.index(0), held)

        def close() -> list[Value]:
            close_job(f, number, closed)
            forget_caller(f)
            return [status]

        def lost() -> list[Value]:
            f.branch(f.compare("eq", status, DONE), fail)
            return [f.const(I32, FAILED)]

        return f.branch(f.compare("eq", read(f, "forks"), forks), close, lost)

    def fail() -> None:
        state = invoke(f, "ensure", I32)
        invoke(f, "raise", VOID, read(f, "error", POINTER), read(f, "reason", POINTER))
        invoke(f, "release", VOID, state)

    def wake(most: Value) -> None:
        def make_way() -> None:
            f.call("make_way", VOID)
            f.put("store atomic i32 0, ptr @waking release, align 4")

        f.branch(_is_first(f, "waking"), make_way)
        _threads(f).wake(f, _upper(f), most)

    is_single = f.compare("slt", tasks, 2)
    has_none = f.compare("eq", read(f, "workers"), 0)
    [status] = f.branch(f.arithmetic("or", is_single, has_none), alone, together)
    return status


class Pool:
    """The pool of `threads` threads; the thread that runs a loop is one of them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = CODE.linked(["run", "now"])
        for name, function in PYTHON.items():
            self._set(name, address_of(getattr(ctypes.pythonapi, function)))
        for name, function in threads_of(process().system).functions.items():
            if process().has(function):
                self._set(name, process().address(function))
        self._set("workers", threads - 1)
        self._set("main", threading.main_thread().ident or 0)
        for name in ("take", "give"):
            self._set(name, memory().library[name])
        self._places = (ctypes.c_int32 * (3 * threads))()
        self._set("places", ctypes.addressof(self._places))
        self._jobs = Records(threads)
        for name, value in self._jobs.variables.items():
            self._set(name, value)
        self._set("times", ctypes.addressof(ring()))
        self._forks = 0
        self._set("error", id(RuntimeCheckError))
        self._set("reason", id(_FORKED))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_workers)
        # The workers run this code until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._library))

    @property
    def run(self) -> int:
        """The address of `int32 run(body, void *context, int64 tasks, int64 bytes)`.

        The arguments of `void body(void *, int64, int64, void *)` are the context, the number of a
        task, the slot of a thread, and its scratch memory of `bytes`. The result is 1 if memory is
        exhausted, or a signal handler has raised a Python exception.
        """
        return self._library["run"]

    @property
    def now(self) -> int:
        """The address of `int64 now()`: nanoseconds of the clock that perf_counter reads."""
        return self._library["now"]

    def _set(self, name: str, value: int) -> None:
        CODE.set(self._library, name, value)

    def _forget_workers(self) -> None:
        """A forked child has none of the workers, and no loop but that of a signal handler."""
        for name in ("state", "sleepers", "started", "waking"):
            self._set(name, 0)
        self._set("main", threading.get_ident())
        self._forks += 1
        self._set("forks", self._forks)
        for table in (self._places, self._jobs.memory):
            ctypes.memset(table, 0, ctypes.sizeof(table))


@Late
def pool() -> Pool:
    """The pool of this process, created at the first use.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    return Pool(native_threads())


def native_threads() -> int:
    """The number of threads that share native loops: one where threads cannot wait for loops.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    count = thread_count()
    functions = threads_of(process().system).functions
    return count if functions and process().has(*functions.values()) else 1


def connect(variable: int) -> None:
    """Store the function of the pool and its number of threads at a module's variable."""
    words = (ctypes.c_uint64 * 2).from_address(variable)
    words[0], words[1] = pool().run, pool().threads
