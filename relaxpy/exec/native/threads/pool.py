"""The thread pool of the process, as native code: one parallel loop at a time.

A loop opens a job in an atomic word, which holds its number and how many workers have joined it.
Workers wait for a job, first actively for about a quarter of a millisecond, then asleep. A job
ends when all its tasks are done and each worker that joined has left: nobody waits for a worker
that did not wake in time. A loop that finds the pool busy, by another thread of Python or since it
is inside a task, runs alone. The workers start at the first loop, also in a forked child. Each
thread of a loop has a slot, the number of its scratch memory: the thread that runs it has slot 0.
A loop also says how many bytes each thread needs beside its stack, which may be small. Workers keep
theirs for later loops.

Between two tasks the main thread of Python looks at the clock. Once a second it lets Python run the
handlers of signals that have arrived. If one raises, as that of Ctrl-C does, no other task begins.

After a pause Linux may wake a worker on the processor of the thread that wakes it, where the worker
waits for its turn. A loop therefore keeps sleeping workers from its own processor until they are
awake; then they may run where the thread of the loop may.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from typing import Final

from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.objects import compile_object, link_object
from relaxpy.exec.native.threads.memory import address_of, memory
from relaxpy.exec.runtime.threads import thread_count
from relaxpy.exec.runtime.worker_times import ENTRIES, ring

_SPINS: Final = 5_000
_MASK_BYTES: Final = 128
_PLACE: Final = "{ i32, i32, i32 }"
#: The numbers of the system calls.
_CALLS: Final = {
    "x86_64": {"futex": 202, "gettid": 186, "set_affinity": 203, "get_affinity": 204},
    "aarch64": {"futex": 98, "gettid": 178, "set_affinity": 122, "get_affinity": 123},
}
_PAUSE: Final = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_TEXT: Final = """\
target triple = "{triple}"
@job = global i64 0, align 64
@body = global ptr null, align 64
@context = global ptr null
@tasks = global i64 0
@bytes = global i64 0
@next = global i64 0, align 64
@sleepers = global i32 0, align 64
@busy = global i32 0, align 64
@started = global i32 0
@workers = global i64 0, align 64
@syscall = global ptr null
@create = global ptr null
@yield = global ptr null
@processor = global ptr null
@self = global ptr null
@main = global i64 0
@second = global i64 0
@ensure = global ptr null
@check = global ptr null
@release = global ptr null
@no_memory = global ptr null
@take = global ptr null
@give = global ptr null
@times = global ptr null
@owner = global i64 0
; Of each slot: the thread, whether it sleeps, whether it is kept from a processor.
@places = global ptr null
@allowed = global [{mask_bytes} x i8] zeroinitializer, align 8
@elsewhere = global [{mask_bytes} x i8] zeroinitializer, align 8

; Once a second, let Python run the handlers of signals: 1 if one of them raises.
define internal i32 @interrupted() nounwind {{
entry:
  %self = load ptr, ptr @self
  %thread = call i64 %self()
  %main = load i64, ptr @main
  %here = icmp eq i64 %thread, %main
  br i1 %here, label %clock, label %done
clock:
  %now = call i64 @time(ptr null)
  %last = load i64, ptr @second
  %same = icmp eq i64 %now, %last
  br i1 %same, label %done, label %ask
ask:
  store i64 %now, ptr @second
  %ensure = load ptr, ptr @ensure
  %state = call i32 %ensure()
  %check = load ptr, ptr @check
  %failed = call i32 %check()
  %release = load ptr, ptr @release
  call void %release(i32 %state)
  %raised = icmp ne i32 %failed, 0
  %status = zext i1 %raised to i32
  ret i32 %status
done:
  ret i32 0
}}
declare i64 @time(ptr)

define internal i32 @work(ptr %body, ptr %context, i64 %tasks, i64 %slot, ptr %held) nounwind {{
entry:
  %worker = icmp ne i64 %slot, 0
  br label %head
head:
  %task = atomicrmw add ptr @next, i64 1 monotonic
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %do, label %done
do:
  call void %body(ptr %context, i64 %task, i64 %slot, ptr %held)
  br i1 %worker, label %head, label %listen
listen:
  %status = call i32 @interrupted()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %stop, label %head
stop:
  store atomic i64 %tasks, ptr @next monotonic, align 8
  ret i32 1
done:
  ret i32 0
}}

; Nanoseconds of the clock that Python's perf_counter reads.
define internal i64 @now() nounwind {{
  %time = alloca {{ i64, i64 }}
  call i32 @clock_gettime(i32 1, ptr %time)
  %rest_at = getelementptr {{ i64, i64 }}, ptr %time, i32 0, i32 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}
declare i32 @clock_gettime(i32, ptr)

; A worker's share of a loop: its time is noted if a thread is profiled.
define internal void @share(
  ptr %body, ptr %context, i64 %tasks, i64 %slot, ptr %held, i64 %thread
) nounwind {{
entry:
  %times = load ptr, ptr @times
  %profiled = load atomic i64, ptr %times monotonic, align 8
  %plain = icmp eq i64 %profiled, 0
  br i1 %plain, label %work, label %measure
work:
  %ignored = call i32 @work(ptr %body, ptr %context, i64 %tasks, i64 %slot, ptr %held)
  ret void
measure:
  %start = call i64 @now()
  %left = call i32 @work(ptr %body, ptr %context, i64 %tasks, i64 %slot, ptr %held)
  %stop = call i64 @now()
  %owner = load i64, ptr @owner
  %count = getelementptr i64, ptr %times, i64 1
  %index = atomicrmw add ptr %count, i64 1 monotonic
  %place = and i64 %index, {last_time}
  %words = mul i64 %place, 4
  %first = add i64 %words, 2
  %entry_at = getelementptr i64, ptr %times, i64 %first
  store i64 %owner, ptr %entry_at
  %worker_at = getelementptr i64, ptr %entry_at, i64 1
  store i64 %thread, ptr %worker_at
  %start_at = getelementptr i64, ptr %entry_at, i64 2
  store i64 %start, ptr %start_at
  %stop_at = getelementptr i64, ptr %entry_at, i64 3
  store i64 %stop, ptr %stop_at
  ret void
}}

define internal ptr @worker(ptr %argument) nounwind {{
entry:
  %held_at = alloca ptr
  %size_at = alloca i64
  store ptr null, ptr %held_at
  store i64 0, ptr %size_at
  %slot = ptrtoint ptr %argument to i64
  %call = load ptr, ptr @syscall
  %places = load ptr, ptr @places
  %thread_of = getelementptr {place}, ptr %places, i64 %slot, i32 0
  %asleep = getelementptr {place}, ptr %places, i64 %slot, i32 1
  %kept_away = getelementptr {place}, ptr %places, i64 %slot, i32 2
  %thread = call i64 (i64, ...) %call(i64 {gettid})
  %id = trunc i64 %thread to i32
  store i32 %id, ptr %thread_of
  br label %head
head:
  %last = phi i64 [ 0, %entry ], [ %last, %again ], [ %number, %left ]
  %spins = phi i64 [ 0, %entry ], [ %count, %again ], [ 0, %left ]
  %job = load atomic i64, ptr @job acquire, align 8
  %number = lshr i64 %job, 32
  %odd = and i64 %number, 1
  %open = icmp ne i64 %odd, 0
  %new = icmp ne i64 %number, %last
  %both = and i1 %open, %new
  br i1 %both, label %join, label %wait
join:
  %grown = add i64 %job, 1
  %exchange = cmpxchg ptr @job, i64 %job, i64 %grown acq_rel monotonic
  %success = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %success, label %joined, label %again
joined:
  %body = load ptr, ptr @body
  %context = load ptr, ptr @context
  %tasks = load i64, ptr @tasks
  %bytes = load i64, ptr @bytes
  %size = load i64, ptr %size_at
  %enough = icmp sle i64 %bytes, %size
  br i1 %enough, label %begin, label %grow
grow:
  %small = load ptr, ptr %held_at
  %give = load ptr, ptr @give
  call void %give(ptr %small)
  %take = load ptr, ptr @take
  %large = call ptr %take(i64 %bytes)
  %absent = icmp eq ptr %large, null
  %new_size = select i1 %absent, i64 0, i64 %bytes
  store ptr %large, ptr %held_at
  store i64 %new_size, ptr %size_at
  br i1 %absent, label %left, label %begin
begin:
  %held = load ptr, ptr %held_at
  call void @share(
    ptr %body, ptr %context, i64 %tasks, i64 %slot, ptr %held, i64 %thread
  )
  br label %left
left:
  atomicrmw sub ptr @job, i64 1 release
  br label %head
wait:
  %more = add i64 %spins, 1
  %long = icmp sgt i64 %more, {spins}
  br i1 %long, label %sleep, label %idle
idle:
  call void {pause}
  br label %again
sleep:
  atomicrmw add ptr @sleepers, i32 1 seq_cst
  %word = trunc i64 %number to i32
  %upper = getelementptr i8, ptr @job, i64 4
  store atomic i32 1, ptr %asleep monotonic, align 4
  call i64 (i64, ...) %call(i64 {futex}, ptr %upper, i64 128, i32 %word, ptr null)
  store atomic i32 0, ptr %asleep monotonic, align 4
  atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %kept = atomicrmw xchg ptr %kept_away, i32 0 acquire
  %away = icmp ne i32 %kept, 0
  br i1 %away, label %return, label %again
return:
  call i64 (i64, ...) %call(i64 {set_affinity}, i64 0, i64 {mask_bytes}, ptr @allowed)
  br label %again
again:
  %count = phi i64 [ %spins, %join ], [ %more, %idle ], [ 0, %sleep ], [ 0, %return ]
  br label %head
}}

define internal void @start() nounwind {{
entry:
  %thread = alloca i64
  store i32 1, ptr @started
  %workers = load i64, ptr @workers
  %create = load ptr, ptr @create
  br label %head
head:
  %count = phi i64 [ 0, %entry ], [ %next, %do ]
  %more = icmp slt i64 %count, %workers
  br i1 %more, label %do, label %done
do:
  %next = add i64 %count, 1
  %slot = inttoptr i64 %next to ptr
  %failed = call i32 %create(ptr %thread, ptr null, ptr @worker, ptr %slot)
  br label %head
done:
  ret void
}}

; Keep the sleeping workers from this processor, if there is another one.
define internal void @make_way() nounwind {{
entry:
  %call = load ptr, ptr @syscall
  %size = call i64 (i64, ...) %call(i64 {get_affinity}, i64 0, i64 {mask_bytes}, ptr @allowed)
  %known = icmp sgt i64 %size, 0
  br i1 %known, label %clear, label %done
clear:
  call void @llvm.memcpy.p0.p0.i64(ptr @elsewhere, ptr @allowed, i64 {mask_bytes}, i1 false)
  %processor = load ptr, ptr @processor
  %here = call i32 %processor()
  %index = lshr i32 %here, 3
  %bit = and i32 %here, 7
  %shifted = shl i32 1, %bit
  %narrow = trunc i32 %shifted to i8
  %others = xor i8 %narrow, -1
  %byte = getelementptr i8, ptr @elsewhere, i32 %index
  %old = load i8, ptr %byte
  %new = and i8 %old, %others
  store i8 %new, ptr %byte
  %bits = load i{mask_bits}, ptr @elsewhere, align 8
  %none = icmp eq i{mask_bits} %bits, 0
  br i1 %none, label %done, label %begin
begin:
  %workers = load i64, ptr @workers
  %places = load ptr, ptr @places
  br label %head
head:
  %slot = phi i64 [ 1, %begin ], [ %next, %again ]
  %more = icmp sle i64 %slot, %workers
  br i1 %more, label %look, label %done
look:
  %asleep_at = getelementptr {place}, ptr %places, i64 %slot, i32 1
  %asleep = load atomic i32, ptr %asleep_at monotonic, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %move, label %again
move:
  %thread_of = getelementptr {place}, ptr %places, i64 %slot, i32 0
  %thread = load i32, ptr %thread_of
  %id = sext i32 %thread to i64
  %kept_away = getelementptr {place}, ptr %places, i64 %slot, i32 2
  store atomic i32 1, ptr %kept_away release, align 4
  call i64 (i64, ...) %call(i64 {set_affinity}, i64 %id, i64 {mask_bytes}, ptr @elsewhere)
  br label %again
again:
  %next = add i64 %slot, 1
  br label %head
done:
  ret void
}}

; 1 if a signal has ended the loop before all tasks were done, or there is not enough memory.
define i32 @run(ptr %body, ptr %context, i64 %tasks, i64 %bytes) nounwind {{
entry:
  %small = icmp eq i64 %bytes, 0
  br i1 %small, label %start, label %reserve
start:
  %first = call i32 @run_with(ptr %body, ptr %context, i64 %tasks, i64 %bytes, ptr null)
  ret i32 %first
reserve:
  %take = load ptr, ptr @take
  %held = call ptr %take(i64 %bytes)
  %absent = icmp eq ptr %held, null
  br i1 %absent, label %fail, label %begin
begin:
  %second = call i32 @run_with(ptr %body, ptr %context, i64 %tasks, i64 %bytes, ptr %held)
  %give = load ptr, ptr @give
  call void %give(ptr %held)
  ret i32 %second
fail:
  %ensure = load ptr, ptr @ensure
  %state = call i32 %ensure()
  %no_memory = load ptr, ptr @no_memory
  call ptr %no_memory()
  %release = load ptr, ptr @release
  call void %release(i32 %state)
  ret i32 1
}}

define internal i32 @run_with(
  ptr %body, ptr %context, i64 %tasks, i64 %bytes, ptr %held
) nounwind {{
entry:
  %workers = load i64, ptr @workers
  %single = icmp slt i64 %tasks, 2
  %none = icmp eq i64 %workers, 0
  %alone = or i1 %single, %none
  br i1 %alone, label %serial, label %try
serial:
  %task = phi i64 [ 0, %entry ], [ 0, %try ], [ %following, %do ]
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %do, label %done
do:
  call void %body(ptr %context, i64 %task, i64 0, ptr %held)
  %following = add i64 %task, 1
  %status = call i32 @interrupted()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %done, label %serial
try:
  %exchange = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %free, label %mine, label %serial
mine:
  %started = load i32, ptr @started
  %ready = icmp ne i32 %started, 0
  br i1 %ready, label %open, label %begin
begin:
  call void @start()
  br label %open
open:
  %times = load ptr, ptr @times
  %profiled = load atomic i64, ptr %times monotonic, align 8
  %plain = icmp eq i64 %profiled, 0
  br i1 %plain, label %publish, label %note
note:
  %ask = load ptr, ptr @syscall
  %owner = call i64 (i64, ...) %ask(i64 {gettid})
  store i64 %owner, ptr @owner
  br label %publish
publish:
  store ptr %body, ptr @body
  store ptr %context, ptr @context
  store i64 %tasks, ptr @tasks
  store i64 %bytes, ptr @bytes
  store atomic i64 0, ptr @next monotonic, align 8
  %old = load atomic i64, ptr @job monotonic, align 8
  %number = lshr i64 %old, 32
  %opened = add i64 %number, 1
  %job = shl i64 %opened, 32
  store atomic i64 %job, ptr @job seq_cst, align 8
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %help
wake:
  call void @make_way()
  %upper = getelementptr i8, ptr @job, i64 4
  %call = load ptr, ptr @syscall
  %others = sub i64 %tasks, 1
  %most = call i64 @llvm.smin.i64(i64 %others, i64 %workers)
  %count = trunc i64 %most to i32
  call i64 (i64, ...) %call(i64 {futex}, ptr %upper, i64 129, i32 %count)
  br label %help
help:
  %left = call i32 @work(ptr %body, ptr %context, i64 %tasks, i64 0, ptr %held)
  %next = add i64 %number, 2
  %closed = shl i64 %next, 32
  %yield = load ptr, ptr @yield
  br label %close
close:
  %spins = phi i64 [ 0, %help ], [ %again, %pause ], [ %again, %rest ]
  %exchanged = cmpxchg ptr @job, i64 %job, i64 %closed acq_rel monotonic
  %success = extractvalue {{ i64, i1 }} %exchanged, 1
  br i1 %success, label %release, label %wait
wait:
  %again = add i64 %spins, 1
  %long = icmp sgt i64 %again, {spins}
  br i1 %long, label %rest, label %pause
pause:
  call void {pause}
  br label %close
rest:
  %ignored = call i32 %yield()
  br label %close
release:
  store atomic i32 0, ptr @busy release, align 4
  br label %done
done:
  %result = phi i32 [ 0, %serial ], [ 1, %do ], [ %left, %release ]
  ret i32 %result
}}
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
#: The variables of the pool that are set from here, and their sizes in bytes.
_SIZES: Final = {
    **dict.fromkeys(("sleepers", "busy", "started"), 4),
    **dict.fromkeys(("job", "workers", "places", "syscall", "create", "yield", "processor"), 8),
    **dict.fromkeys(("self", "main", "ensure", "check", "release", "no_memory"), 8),
    **dict.fromkeys(("take", "give", "times"), 8),
}


class Pool:
    """The pool of `threads` threads, of which one is the thread that runs a loop."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._library = link_object(pool_object(), ["run", *_SIZES])
        libc = ctypes.CDLL(None)
        if sys.platform == "linux":
            for name, function in (
                *(("syscall", libc.syscall), ("create", libc.pthread_create)),
                *(("yield", libc.sched_yield), ("processor", libc.sched_getcpu)),
            ):
                self._set(name, address_of(function))
            self._set("workers", threads - 1)
        api = ctypes.pythonapi
        self._set("self", address_of(libc.pthread_self))
        self._set("main", threading.main_thread().ident or 0)
        self._set("ensure", address_of(api.PyGILState_Ensure))
        self._set("check", address_of(api.PyErr_CheckSignals))
        self._set("release", address_of(api.PyGILState_Release))
        self._set("no_memory", address_of(api.PyErr_NoMemory))
        for name in ("take", "give"):
            self._set(name, memory().library[name])
        self._places = (ctypes.c_int32 * (3 * threads))()
        self._set("places", ctypes.addressof(self._places))
        self._set("times", ctypes.addressof(ring()))
        os.register_at_fork(after_in_child=self._forget_workers)
        # The workers run this code until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._library))

    @property
    def run(self) -> int:
        """The address of `int32 run(body, void *context, int64 tasks, int64 bytes)`.

        The arguments of `void body(void *, int64, int64, void *)` are the context, the number of a
        task, the slot of a thread, and its memory of so many `bytes`. The result is 1 if there is
        no such memory, or the handler of a signal has raised an exception of Python.
        """
        return self._library["run"]

    def _set(self, name: str, value: int) -> None:
        ctypes.memmove(self._library[name], value.to_bytes(8, "little"), _SIZES[name])

    def _forget_workers(self) -> None:
        """A forked child has none of the workers, and no loop is running in it."""
        for name in ("job", "sleepers", "busy", "started"):
            self._set(name, 0)
        self._set("main", threading.get_ident())
        ctypes.memset(self._places, 0, ctypes.sizeof(self._places))


def pool_object() -> bytes:
    """The object file of the code of the pool."""
    triple = host().triple
    processor = triple.split("-")[0]
    text = _TEXT.format(
        triple=triple,
        spins=_SPINS,
        pause=_PAUSE[processor],
        place=_PLACE,
        mask_bytes=_MASK_BYTES,
        mask_bits=8 * _MASK_BYTES,
        last_time=ENTRIES - 1,
        **_CALLS[processor],
    )
    return compile_object(slow=text)


@cache
def pool() -> Pool:
    """The pool of this process, which is made at the first use.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    return Pool(native_threads())


def native_threads() -> int:
    """The number of threads that share native loops: one outside Linux.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    count = thread_count()
    return count if sys.platform == "linux" else 1


def connect(variable: int) -> None:
    """Store the function of the pool and its number of threads at a module's variable."""
    words = (ctypes.c_uint64 * 2).from_address(variable)
    words[0], words[1] = pool().run, pool().threads
