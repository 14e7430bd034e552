"""The thread pool of the process, as native code: one parallel loop at a time.

A loop opens a job in an atomic word, which holds its number and how many workers have joined it.
Workers wait for a job: they spin for about a quarter of a millisecond, then sleep. A job ends when
all its tasks are done and each worker that joined has left: nobody waits for a worker that did not
wake in time. A loop that finds the pool busy, because of another Python thread or because it is
inside a task, runs on its own thread. The workers start at the first loop, also in a forked child.
Each thread of a loop has a slot, the number of its scratch memory: the thread that runs it has slot
0. Each slot has a contiguous range of the tasks: neighbours read the same rows, and loops in a row
over the same rows find them in the cache of the same CPU. A thread takes tasks from the front of its
range, then from the backs of others. A loop also says how many bytes each thread needs beside its stack, which may be small. Workers
keep theirs for later loops. They round as the thread that runs the loop does, and take subnormal
numbers for zeros if it does (`torch.set_flush_denormal`): all tasks compute the same.

Between two tasks the main Python thread reads the clock. Once a second it lets Python run the
handlers of pending signals. If one raises, as that of Ctrl-C does, no other task begins.

After a pause Linux may wake a worker on the CPU of the waking thread, where the worker has to wait.
A loop therefore excludes its own CPU from the affinity of sleeping workers until they are awake.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Final

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Parallel
from relaxpy.exec.native.llvm.writer import BOOL, I8, I32, I64, POINTER, VOID, Function, Type, Value
from relaxpy.exec.native.threads.code import Code, address_of, at, exchanged, invoke, read
from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.native.threads.systems import FUNCTIONS, MASK_BYTES, Futex, Threads, threads_of
from relaxpy.exec.runtime.threads import ENTRIES, ring, thread_count

#: Functions of Python.
_FUNCTIONS: Final = {
    "ensure": "PyGILState_Ensure",
    "release": "PyGILState_Release",
    "check": "PyErr_CheckSignals",
    "no_memory": "PyErr_NoMemory",
}
CODE: Final = Code(
    "pool",
    # Variables that are written at different times are in different cache lines.
    job="i64 0, align 64",
    body="ptr null, align 64",
    context="ptr null",
    **dict.fromkeys(("tasks", "bytes", "control"), "i64 0"),
    # For each slot: its range of tasks, in a cache line.
    ranges="ptr null",
    **dict.fromkeys(("sleepers", "busy", "started"), "i32 0, align 64"),
    workers="i64 0, align 64",
    **dict.fromkeys(("main", "second", "owner"), "i64 0"),
    **dict.fromkeys(("take", "give", "times"), "ptr null"),
    # For each slot: the thread, whether it sleeps, whether a CPU is excluded from its affinity.
    places="ptr null",
    **dict.fromkeys((*_FUNCTIONS, *FUNCTIONS), "ptr null"),
    **dict.fromkeys(("allowed", "elsewhere"), f"[{MASK_BYTES} x i8] zeroinitializer, align 8"),
)


def _threads(f: Function) -> Threads:
    return threads_of(f.module.platform.system)


def _place(f: Function, slot: Value, field: int) -> Value:
    """The address of a field of a slot's thread."""
    return f.element(read(f, "places", POINTER), slot * 3 + field, I32)


def _pause(f: Function) -> None:
    f.put(f"call void {f.module.platform.architecture.pause}")


def _note_control(f: Function) -> None:
    """Store how the calling thread rounds, for the workers of its loop."""
    place = at(f, "control")
    if f.module.platform.architecture.control == "mxcsr":
        f.put(f"call void @llvm.x86.sse.stmxcsr({place})")
    else:
        f.store(f.new(I64, "call i64 @llvm.aarch64.get.fpcr()"), place)


def _take_control(f: Function) -> None:
    """Round as the thread whose loop this worker has joined."""
    if f.module.platform.architecture.control == "mxcsr":
        f.put(f"call void @llvm.x86.sse.ldmxcsr({at(f, 'control')})")
    else:
        f.put(f"call void @llvm.aarch64.set.fpcr({read(f, 'control')})")


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


#: The words of a range: how many of its tasks were taken, of these from the front and from the
#: back, the number of the first one, and the number of tasks.
_TAKEN, _FRONT, _BACK, _FIRST, _SIZE = range(5)


def _range(f: Function, slot: Value) -> Value:
    """The address of the range of a slot."""
    return f.element(read(f, "ranges", POINTER), slot * LINE_BYTES, I8)


def _ranges(f: Function, tasks: Value) -> Value:
    """The number of ranges: that of the slots, unless there are fewer tasks."""
    return f.intrinsic("smin", tasks, read(f, "workers") + 1)


def _divide(f: Function, tasks: Value) -> None:
    """Give each slot a range of the tasks of a new loop."""
    count = _ranges(f, tasks)

    def divide(slot: Value) -> None:
        place = _range(f, slot)
        first, end = (f.arithmetic("udiv", tasks * n, count) for n in (slot, slot + 1))
        for word, value in {_FIRST: first, _SIZE: end - first}.items():
            f.store(value, f.element(place, word, I64))
        for word in (_TAKEN, _FRONT, _BACK):
            f.store(f.index(0), f.element(place, word, I64))

    f.loop(0, count, 1, [], divide)


@CODE.function(I64, POINTER, I32)
def _next(f: Function, place: Value, steals: Value) -> Value:
    """The number of a task that nobody else runs; -1 if none is left in a range.

    As no more tasks are taken than there are, those from the front and from the back do not meet.
    """
    size, taken = f.load(I64, f.element(place, _SIZE, I64)), f.element(place, _TAKEN, I64)

    def one_more(word: int) -> Value:
        counter = f.element(place, word, I64)
        return f.new(I64, f"atomicrmw add {counter}, i64 1 monotonic")

    def take() -> list[Value]:
        return f.branch(f.compare("slt", one_more(_TAKEN), size), taken_one, none)

    def taken_one() -> list[Value]:
        first = f.load(I64, f.element(place, _FIRST, I64))

        def back() -> list[Value]:
            return [first + size - 1 - one_more(_BACK)]

        return f.branch(f.compare("ne", steals, 0), back, lambda: [first + one_more(_FRONT)])

    def none() -> list[Value]:
        return [f.index(-1)]

    before = f.new(I64, f"load atomic i64, {taken} monotonic, align 8")
    [task] = f.branch(f.compare("slt", before, size), take, none)
    return task


@CODE.function(I32, POINTER, POINTER, I64, I64, POINTER)
def _work(
    f: Function, body: Value, context: Value, tasks: Value, slot: Value, held: Value
) -> Value:
    """1 if a signal has ended the tasks."""
    count = _ranges(f, tasks)

    def of_range(number: Value) -> None:
        place = _range(f, f.arithmetic("urem", slot + number, count))
        steals = f.cast("zext", f.compare("ne", number, 0), "i32")

        def following() -> list[Value]:
            return [f.call("next", I64, place, steals)]

        def run(task: Value) -> list[Value]:
            f.put(f"call void {body.name}({context}, {task}, {slot}, {held})")
            f.branch(f.compare("eq", slot, 0), listen)
            return following()

        f.while_loop(following(), lambda task: f.compare("sge", task, 0), run)

    def listen() -> None:
        f.leave(f.compare("ne", f.call("interrupted", I32), 0), stop)

    def stop() -> None:
        f.loop(0, count, 1, [], lambda number: take_all(_range(f, number)))

    def take_all(place: Value) -> None:
        size = f.load(I64, f.element(place, _SIZE, I64))
        f.put(f"store atomic {size}, {f.element(place, _TAKEN, I64)} monotonic, align 8")

    def all_ranges() -> list[Value]:
        f.loop(0, count, 1, [], of_range)
        return [f.const(I32, 0)]

    [status] = f.attempt(all_ranges, lambda: [f.const(I32, 1)])
    return status


@CODE.function(I64)
def _now(f: Function) -> Value:
    """Nanoseconds of the clock that Python's perf_counter reads."""
    return _threads(f).now(f, f.module.platform.system)


@CODE.function(VOID, POINTER, POINTER, I64, I64, POINTER, I64)
def _share(f: Function, *arguments: Value) -> None:
    """A worker's share of a loop: its time is noted if a thread is profiled."""
    *work, thread = arguments
    times = read(f, "times", POINTER)

    def measured() -> None:
        start = f.call("now", I64)
        f.call("work", I32, *work)
        stop = f.call("now", I64)
        count = f.element(times, 1, I64)
        index = f.new(I64, f"atomicrmw add {count}, i64 1 monotonic")
        first = f.arithmetic("and", index, ENTRIES - 1) * 4 + 2
        for n, value in enumerate((read(f, "owner"), thread, start, stop)):
            f.store(value, f.element(times, first + n, I64))

    f.branch(_is_profiled(f), measured, lambda: _unmeasured(f, work))


def _unmeasured(f: Function, work: Sequence[Value]) -> None:
    f.call("work", I32, *work)


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
        job = f.new(I64, "load atomic i64, ptr @job acquire, align 8")
        number = f.arithmetic("lshr", job, 32)
        is_open = f.compare("ne", f.arithmetic("and", number, 1), 0)
        is_new = f.arithmetic("and", is_open, f.compare("ne", number, last))

        def join() -> list[Value]:
            joins = exchanged(f, "job", job, job + 1, "acq_rel")
            return f.branch(joins, lambda: joined(number), lambda: [last, spins])

        return f.branch(is_new, join, lambda: wait(last, number, spins + 1))

    def joined(number: Value) -> list[Value]:
        body, context = read(f, "body", POINTER), read(f, "context", POINTER)
        tasks, size = read(f, "tasks"), read(f, "bytes")

        def grow() -> list[Value]:
            invoke(f, "give", VOID, f.load(POINTER, held_at))
            memory = invoke(f, "take", POINTER, size)
            f.store(memory, held_at)
            f.store(f.select(f.compare("eq", memory, 0), f.index(0), size), size_at)
            return [f.compare("ne", memory, 0)]

        def share() -> None:
            _take_control(f)
            held = f.load(POINTER, held_at)
            f.call("share", VOID, body, context, tasks, slot, held, thread)

        is_enough = f.compare("sle", size, f.load(I64, size_at))
        [is_ready] = f.branch(is_enough, lambda: [f.const(BOOL, 1)], grow)
        f.branch(is_ready, share)
        f.put("atomicrmw sub ptr @job, i64 1 release")
        return [number, f.index(0)]

    def return_to_all(f: Function) -> None:
        if isinstance(threads := _threads(f), Futex):
            threads.set_affinity(f, f.index(0), "allowed")

    def wait(last: Value, number: Value, spins: Value) -> list[Value]:
        def pause() -> list[Value]:
            _pause(f)
            return [last, spins]

        def sleep() -> list[Value]:
            f.put("atomicrmw add ptr @sleepers, i32 1 seq_cst")
            word = f.cast("trunc", number, "i32")
            f.put(f"store atomic i32 1, {asleep} monotonic, align 4")
            _threads(f).wait(f, _upper(f), word)
            f.put(f"store atomic i32 0, {asleep} monotonic, align 4")
            f.put("atomicrmw sub ptr @sleepers, i32 1 seq_cst")
            kept = f.new(I32, f"atomicrmw xchg {kept_away}, i32 0 acquire")
            f.branch(f.compare("ne", kept, 0), lambda: return_to_all(f))
            return [last, f.index(0)]

        return f.branch(f.compare("sgt", spins, Parallel.SPINS), sleep, pause)

    f.while_loop([f.index(0)] * 2, lambda *_: f.const(BOOL, 1), look)
    return f.const(POINTER, 0)


def _upper(f: Function) -> Value:
    """The address of the number of the job, for which workers wait."""
    return f.element(at(f, "job"), 4, I8)


@CODE.function(VOID)
def _start(f: Function) -> None:
    f.store(f.const(I32, 1), at(f, "started"))

    def create(slot: Value) -> None:
        argument = f.cast("inttoptr", slot, "ptr")
        _threads(f).create(f, at(f, "worker"), argument)

    f.loop(1, read(f, "workers") + 1, 1, [], create)


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
        asleep = f.new(I32, f"load atomic i32, {_place(f, slot, 1)} monotonic, align 4")
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

        f.loop(0, tasks, 1, [], run)
        return [f.const(I32, 0)]

    def together() -> list[Value]:
        free = exchanged(f, "busy", f.const(I32, 0), f.const(I32, 1), "acquire")
        return f.branch(free, shared, alone)

    def start() -> None:
        f.call("start", VOID)

    def note_owner() -> None:
        f.store(_threads(f).number(f), at(f, "owner"))

    def shared() -> list[Value]:
        f.branch(f.compare("eq", read(f, "started", I32), 0), start)
        f.branch(_is_profiled(f), note_owner)
        values = {"body": body, "context": context, "tasks": tasks, "bytes": size}
        for name, value in values.items():
            f.store(value, at(f, name))
        _note_control(f)
        _divide(f, tasks)
        old = f.new(I64, "load atomic i64, ptr @job monotonic, align 8")
        number = f.arithmetic("lshr", old, 32)
        job = f.arithmetic("shl", number + 1, 32)
        f.put(f"store atomic {job}, ptr @job seq_cst, align 8")
        sleepers = f.new(I32, "load atomic i32, ptr @sleepers seq_cst, align 4")
        f.branch(f.compare("sgt", sleepers, 0), wake)
        status = f.call("work", I32, body, context, tasks, f.index(0), held)
        closed = f.arithmetic("shl", number + 2, 32)

        def is_open(spins: Value) -> Value:
            return f.arithmetic("xor", exchanged(f, "job", job, closed, "acq_rel"), 1)

        def wait(spins: Value) -> list[Value]:
            more = spins + 1
            f.branch(f.compare("sgt", more, Parallel.SPINS), rest, lambda: _pause(f))
            return [more]

        f.while_loop([f.index(0)], is_open, wait)
        f.put("store atomic i32 0, ptr @busy release, align 4")
        return [status]

    def wake() -> None:
        f.call("make_way", VOID)
        most = f.intrinsic("smin", tasks - 1, read(f, "workers"))
        _threads(f).wake(f, _upper(f), most)

    def rest() -> None:
        _threads(f).give_way(f)

    def run() -> list[Value]:
        is_single = f.compare("slt", tasks, 2)
        has_none = f.compare("eq", read(f, "workers"), 0)
        return f.branch(f.arithmetic("or", is_single, has_none), alone, together)

    [status] = f.attempt(run, lambda: [f.const(I32, 1)])
    return status


class Pool:
    """The pool of `threads` threads; the thread that runs a loop is one of them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = CODE.linked(["run"])
        for name, function in _FUNCTIONS.items():
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
        self._ranges = (ctypes.c_char * (LINE_BYTES * (threads + 1)))()
        self._set("ranges", -(-ctypes.addressof(self._ranges) // LINE_BYTES) * LINE_BYTES)
        self._set("times", ctypes.addressof(ring()))
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

    def _set(self, name: str, value: int) -> None:
        CODE.set(self._library, name, value)

    def _forget_workers(self) -> None:
        """A forked child has none of the workers, and no loop is running in it."""
        for name in ("job", "sleepers", "busy", "started"):
            self._set(name, 0)
        self._set("main", threading.get_ident())
        ctypes.memset(self._places, 0, ctypes.sizeof(self._places))


@cache
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
