"""The jobs of the thread pool: the parallel loops that run, their tasks, and their threads.

A job is a record of a few cache lines. The first line has an atomic word, with the number of
workers that have joined, and what these need to run tasks. Each other line is a contiguous range of
the tasks, one for each thread: neighbours read the same rows, and loops in a row that divide the
same rows find them in the cache of the same CPU. A thread takes tasks from the front of its range,
then from the backs of others.

Threads of Python that run loops at the same time are the callers. Each has an equal share of the
threads and is one of them: workers join a job as long as it has fewer, and leave it after a task
where another caller has come. A caller for whom no record is left runs all its tasks.
"""

from __future__ import annotations

import ctypes
from typing import Final

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Parallel
from relaxpy.exec.native.llvm.writer import I8, I32, I64, POINTER, Function, Operand, Value
from relaxpy.exec.native.threads.code import Code, at, exchanged, read
from relaxpy.exec.native.threads.systems import FUNCTIONS, MASK_BYTES, Threads, threads_of

PYTHON: Final = {
    "ensure": "PyGILState_Ensure",
    "release": "PyGILState_Release",
    "check": "PyErr_CheckSignals",
    "no_memory": "PyErr_NoMemory",
    "raise": "PyErr_SetObject",
}
"""Functions of Python by the variables with their addresses."""
CODE: Final = Code(
    "pool",
    # The number of callers, and in the upper half that of jobs so far, for which workers wait.
    # Variables that are written at different times are in different cache lines.
    state="i64 0, align 64",
    **dict.fromkeys(("sleepers", "started", "waking"), "i32 0, align 64"),
    workers="i64 0, align 64",
    # How many forks there are between this process and the first one that had the pool.
    **dict.fromkeys(("records", "main", "second", "forks"), "i64 0"),
    **dict.fromkeys(("jobs", "take", "give", "times", "error", "reason"), "ptr null"),
    # For each slot: the thread, whether it sleeps, whether a CPU is excluded from its affinity.
    places="ptr null",
    **dict.fromkeys((*PYTHON, *FUNCTIONS), "ptr null"),
    **dict.fromkeys(("allowed", "elsewhere"), f"[{MASK_BYTES} x i8] zeroinitializer, align 8"),
)
"""The code of the pool: here the functions on jobs, in `pool.py` those of its threads."""

#: The words of a job.
WORD, BODY, CONTEXT, TASKS, BYTES, CONTROL, OWNER, RANGES = range(8)
#: The word of a job has the number of workers that have joined, then whether more of them may, and
#: whether it is in use; then a number, which differs from that of the last job of the record.
_JOINED, _OPEN, _IN_USE, _NUMBER = (1 << 32) - 1, 1 << 32, 1 << 33, 1 << 34
#: What a job adds to the state: the number of callers is less.
_ONE_JOB = 1 << 32
#: The words of a range: how many of its tasks were taken, of these from the front and from the
#: back, the number of the first one, and the number of tasks.
_TAKEN, _FRONT, _BACK, _FIRST, _SIZE = range(5)
DONE, FAILED, CROWDED = range(3)
"""How the work of a thread on a job ends: all tasks are taken, a signal has ended them, or the job
has more threads than its share."""


class Records:
    """The memory of the jobs of all threads, and the `variables` that say where it is.

    There are as many jobs at a time as there are ranges of one.
    """

    def __init__(self, threads: int) -> None:
        count = min(threads, Parallel.JOBS)
        self.memory = (ctypes.c_char * ((count * (count + 1) + 1) * LINE_BYTES))()
        first = -(-ctypes.addressof(self.memory) // LINE_BYTES) * LINE_BYTES
        self.variables = {"jobs": first, "records": count}


def system_threads(f: Function) -> Threads:
    """The threads of the system for which `f` is written."""
    return threads_of(f.module.platform.system)


def job_of(f: Function, number: Value) -> Value:
    """The address of the job in a record."""
    return f.element(read(f, "jobs", POINTER), number * ((read(f, "records") + 1) * LINE_BYTES), I8)


def field(f: Function, job: Value, number: int) -> Value:
    """The address of a word of a job."""
    return f.element(job, number, I64)


def pause(f: Function) -> None:
    """Let the CPU wait for a moment."""
    f.put(f"call void {f.module.platform.architecture.pause}")


def threads_of_job(f: Function, number: Value, state: Value) -> Value:
    """The most threads of the job in a record: 1 or less where no worker helps.

    The first jobs have the threads that equal shares leave, so that none is idle.
    """
    callers = f.intrinsic("smax", f.arithmetic("and", state, _ONE_JOB - 1), 1)
    threads = read(f, "workers") + 1
    rest = f.compare("slt", number, f.arithmetic("urem", threads, callers))
    return f.arithmetic("udiv", threads, callers) + f.cast("zext", rest, "i64")


def note_caller(f: Function, *, opens: bool = False) -> None:
    """Count the calling thread among the callers, and a job if it `opens` one."""
    f.put(f"atomicrmw add ptr @state, i64 {1 + opens * _ONE_JOB} seq_cst")


def forget_caller(f: Function) -> None:
    """Count the calling thread among the callers no longer."""
    f.put("atomicrmw sub ptr @state, i64 1 seq_cst")


def _loaded(f: Function, place: Value, order: str) -> Value:
    return f.new(I64, f"load atomic i64, {place} {order}, align 8")


@CODE.function(I64)
def _reserve(f: Function) -> Value:
    """The number of a record that is in use from now on; -1 if all are."""

    def look(number: Value, found: Value) -> list[Value]:
        place = field(f, job_of(f, number), WORD)
        word = _loaded(f, place, "monotonic")

        def use() -> list[Value]:
            is_mine = exchanged(f, place, word, word + _IN_USE, "acquire")
            return [f.select(is_mine, number, found)]

        is_free = f.compare("eq", f.arithmetic("and", word, _IN_USE), 0)
        return [number + 1, *f.branch(is_free, use, lambda: [found])]

    def is_left(number: Value, found: Value) -> Value:
        is_next = f.compare("slt", number, read(f, "records"))
        return f.arithmetic("and", is_next, f.compare("slt", found, 0))

    return f.while_loop([f.index(0), f.index(-1)], is_left, look)[1]


def open_job(f: Function, number: Value, threads: Value) -> Value:
    """Let workers join the job in a reserved record; the word after all of them have left."""
    job = job_of(f, number)
    tasks = f.load(I64, field(f, job, TASKS))
    count = f.intrinsic("smin", tasks, f.intrinsic("smin", threads, read(f, "records")))
    f.store(count, field(f, job, RANGES))

    def divide(number: Value) -> None:
        place = _range(f, job, number)
        first, end = (f.arithmetic("udiv", tasks * n, count) for n in (number, number + 1))
        for word, value in {_FIRST: first, _SIZE: end - first}.items():
            f.store(value, f.element(place, word, I64))
        for word in (_TAKEN, _FRONT, _BACK):
            f.store(f.index(0), f.element(place, word, I64))

    f.loop(0, count, 1, [], divide)
    closed = _loaded(f, field(f, job, WORD), "monotonic") + _NUMBER
    f.put(f"store atomic {closed + _OPEN}, {field(f, job, WORD)} seq_cst, align 8")
    return closed


def close_job(f: Function, number: Value, closed: Value) -> None:
    """Wait until all workers have left a job, and free its record."""
    place = field(f, job_of(f, number), WORD)
    _admit_nobody(f, place)

    def is_shared(spins: Value) -> Value:
        return f.compare("ne", _loaded(f, place, "acquire"), closed)

    def wait(spins: Value) -> list[Value]:
        is_long = f.compare("sgt", spins, Parallel.SPINS)
        f.branch(is_long, lambda: system_threads(f).give_way(f), lambda: pause(f))
        return [spins + 1]

    f.while_loop([f.index(0)], is_shared, wait)
    f.put(f"store atomic {closed - _IN_USE}, {place} release, align 8")


def _admit_nobody(f: Function, place: Value) -> None:
    f.put(f"atomicrmw and {place}, i64 {~_OPEN} acq_rel")


@CODE.function(I64, I64)
def _join(f: Function, state: Value) -> Value:
    """The number of a job that this worker has joined, and in the lower half that of its range.

    It is -1 if none has fewer threads than its share.
    """

    def look(number: Value, _: Value) -> list[Value]:
        place = field(f, job_of(f, number), WORD)
        word = _loaded(f, place, "acquire")
        order = f.arithmetic("and", word, _JOINED) + 1
        is_open = f.compare("ne", f.arithmetic("and", word, _OPEN), 0)
        has_room = f.compare("slt", order, threads_of_job(f, number, state))

        def join() -> list[Value]:
            joins = exchanged(f, place, word, word + 1, "acq_rel")
            found = f.arithmetic("or", f.arithmetic("shl", number, 32), order)
            # Others may have changed the word: look again.
            return [f.select(joins, number + 1, number), f.select(joins, found, -1)]

        return f.branch(
            f.arithmetic("and", is_open, has_room), join, lambda: [number + 1, f.index(-1)]
        )

    def is_left(number: Value, found: Value) -> Value:
        is_next = f.compare("slt", number, read(f, "records"))
        return f.arithmetic("and", is_next, f.compare("slt", found, 0))

    return f.while_loop([f.index(0), f.index(-1)], is_left, look)[1]


def _is_crowded(f: Function, number: Value, word: Value) -> Value:
    """True if a job has more threads than its share."""
    share = threads_of_job(f, number, _loaded(f, at(f, "state"), "monotonic"))
    return f.compare("sgt", f.arithmetic("and", word, _JOINED) + 1, share)


@CODE.function(I32, I64)
def _leave(f: Function, number: Value) -> Value:
    """1 if this worker has left its job, which had more threads than its share."""
    place = field(f, job_of(f, number), WORD)

    def look(_: Value) -> list[Value]:
        word = _loaded(f, place, "monotonic")

        def leave() -> list[Value]:
            leaves = exchanged(f, place, word, word - 1, "acq_rel")
            return [f.select(leaves, f.const(I32, 1), -1)]

        return f.branch(_is_crowded(f, number, word), leave, lambda: [f.const(I32, 0)])

    unknown = f.const(I32, -1)
    return f.while_loop([unknown], lambda status: f.compare("slt", status, 0), look)[0]


def leave_done(f: Function, number: Value) -> None:
    """Leave a job whose tasks are all taken."""
    place = field(f, job_of(f, number), WORD)
    _admit_nobody(f, place)
    f.put(f"atomicrmw sub {place}, i64 1 release")


def _range(f: Function, job: Value, number: Operand) -> Value:
    """The address of a range of a job."""
    return f.element(job, (f.index(number) + 1) * LINE_BYTES, I8)


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

    [task] = f.branch(f.compare("slt", _loaded(f, taken, "monotonic"), size), take, none)
    return task


@CODE.function(I32, I64, I64, I64, POINTER)
def _work(f: Function, number: Value, slot: Value, order: Value, held: Value) -> Value:
    """Run tasks of a job, first those of the range of that order: DONE, FAILED or CROWDED."""
    job = job_of(f, number)
    body, context = (f.load(POINTER, field(f, job, n)) for n in (BODY, CONTEXT))
    count = f.load(I64, field(f, job, RANGES))
    how, forks = f.alloca(I32, 1), read(f, "forks")

    def of_range(before: Value) -> None:
        place = _range(f, job, f.arithmetic("urem", order + before, count))
        steals = f.cast("zext", f.compare("ne", before, 0), "i32")

        def following() -> list[Value]:
            return [f.call("next", I64, place, steals)]

        def run(task: Value) -> list[Value]:
            f.put(f"call void {body.name}({context}, {task}, {slot}, {held})")
            f.branch(f.compare("eq", slot, 0), listen, make_room)
            return following()

        f.while_loop(following(), lambda task: f.compare("sge", task, 0), run)

    def ends(status: int) -> None:
        f.store(f.const(I32, status), how)

    def listen() -> None:
        f.leave(f.compare("ne", f.call("interrupted", I32), 0), stop)
        f.leave(f.compare("ne", read(f, "forks"), forks), lambda: ends(DONE))

    def make_room() -> None:
        word = _loaded(f, field(f, job, WORD), "monotonic")
        f.leave(_is_crowded(f, number, word), lambda: ends(CROWDED))

    def stop() -> None:
        f.loop(0, count, 1, [], lambda number: take_all(_range(f, job, number)))
        ends(FAILED)

    def take_all(place: Value) -> None:
        size = f.load(I64, f.element(place, _SIZE, I64))
        f.put(f"store atomic {size}, {f.element(place, _TAKEN, I64)} monotonic, align 8")

    def all_ranges() -> list[Value]:
        f.loop(0, count, 1, [], of_range)
        return [f.const(I32, DONE)]

    [status] = f.attempt(all_ranges, lambda: [f.load(I32, how)])
    return status
