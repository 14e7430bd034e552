"""Parallel loops run each task once, and share the threads of the pool."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.native.calls.jit import Library, compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.threads.code import parallel
from relaxpy.exec.runtime.threads import THREADS, thread_count

ROOT = Path(__file__).parents[3]


def squares() -> Module:
    """`run(out, n)` adds task**2 + n to each of n numbers; `nested` does it with two loops."""
    module = Module(host().triple, host().vector_bits)
    function = module.function("run", [(POINTER, "out"), (I64, "n")])
    out, size = function.params
    parallel(function, size, [out, size], add_square)
    function.ret()
    function = module.function("nested", [(POINTER, "out"), (I64, "n")])
    out, size = function.params

    def row(f: Function, task: Value, slot: Value, out: Value, size: Value) -> None:
        def column(
            f: Function, inner: Value, slot: Value, out: Value, outer: Value, size: Value
        ) -> None:
            add_square(f, outer * 8 + inner, slot, out, size)

        parallel(f, 8, [out, task, size], column)

    parallel(function, function.new(I64, f"lshr {size}, 3"), [out, size], row)
    function.ret()
    return module


def add_square(f: Function, task: Value, slot: Value, out: Value, size: Value) -> None:
    place = f.element(out, task, I64)
    f.store(f.load(I64, place) + task * task + size, place)


@pytest.fixture(scope="module")
def library() -> Library:
    return compile_module(squares(), ["run", "nested"])


def run(library: Library, size: int, name: str = "run") -> bool:
    """Whether a loop has run each task once."""
    out = np.zeros(size, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library[name])(out.ctypes.data, size)
    return bool(np.array_equal(out, np.arange(size) ** 2 + size))


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_each_task_runs_once(size: int, library: Library) -> None:
    assert all(run(library, size) for _ in range(20))


def test_a_loop_inside_a_task_runs_alone(library: Library) -> None:
    assert all(run(library, 800, "nested") for _ in range(20))


def test_several_threads_of_python_run_loops_at_a_time(library: Library) -> None:
    found: list[bool] = []
    in_threads(4, lambda: found.extend(run(library, n, "nested") for n in range(8, 1600, 16)))
    assert len(found) == 400
    assert all(found)


def test_values_of_all_types_are_captured() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("f", [(POINTER, "out"), (Type("double"), "x"), (Type("i8"), "y")])
    out, x, y = function.params
    vector = function.iota(Type("float", 16))
    mask = function.compare("oge", vector, 8)

    def task(f: Function, task: Value, _: Value, out: Value, *values: Value) -> None:
        x, y, vector, mask = values
        sum = f.cast("fptrunc", x, "float") + f.cast("sitofp", y, "float")
        place = f.element(out, task * 16, Type("float"))
        f.store(f.select(mask, vector + sum, vector), place)

    parallel(function, 2, [out, x, y, vector, mask], task)
    function.ret()
    library = compile_module(module, ["f"])
    out_array = np.zeros((2, 16), np.float32)
    types = (ctypes.c_void_p, ctypes.c_double, ctypes.c_int8)
    ctypes.CFUNCTYPE(None, *types)(library["f"])(out_array.ctypes.data, 0.5, -3)
    numbers = np.arange(16)
    assert (out_array == np.where(numbers >= 8, numbers - 2.5, numbers)).all()


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "4097", "9" * 30, "9" * 5000])
def test_a_number_of_threads_that_is_not_one_is_refused(text, monkeypatch) -> None:
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(MisuseError, match="expected an integer from 1 to 4096"):
        thread_count()


START = """
from relaxpy.exec.native.threads import pool
from tests.exec.native.test_pool import *
library = compile_module(squares(), ["run"])
"""


def process(text: str, **environment: str) -> str:
    """What a new interpreter prints; it ends by itself, and with status 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    result = subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


FORK = f"""{START}
import contextlib, time
def child():
    identifier = os.fork()
    if not identifier:
        os._exit(0 if all(run(library, 1000) for _ in range(50)) else 1)
    return os.waitpid(identifier, 0)[1]
print(run(library, 1000), child(), run(library, 1000))
stop = []
def work():
    while not stop:
        run(library, 1000)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
print([child() for _ in range(5)])
stop.append(1)
for thread in threads:
    thread.join()
def states():
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/self/task/{{name}}/stat").read_text()
            if int(name) != os.getpid():
                yield text.split(")")[1].split()[0]
while list(states()) != ["S", "S"]:
    time.sleep(0.001)
print("asleep")
threading.Thread(target=lambda: run(library, 1000), daemon=True).start()
"""


def test_a_forked_child_has_its_own_workers_and_idle_workers_sleep() -> None:
    lines = process(FORK, RELAXPY_NUM_THREADS="3", OPENBLAS_NUM_THREADS="1").splitlines()
    assert lines == ["True 0 True", "[0, 0, 0, 0, 0]", "asleep"]


HANDLER = f"""{START}
import signal
words, children = np.zeros(3, np.int64), []
signal.signal(signal.SIGUSR1, lambda *_: children.append(os.fork()))
def interrupt():
    while words[0] < 2:
        pass
    os.kill(os.getpid(), signal.SIGUSR1)
    words[2] = 2
threading.Thread(target=interrupt).start()
waiting = compile_module(gates(), ["run"])
try:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(waiting["run"])(words.ctypes.data, 2)
except SystemError as error:  # this caller takes no notice of exceptions
    assert children == [0] and "forked the process during a parallel loop" in str(error.__cause__)
else:
    assert children[0] and os.waitpid(children[0], 0)[1] == 0
assert all(run(library, 1000) for _ in range(50))
"""


def test_a_loop_is_an_error_in_a_child_that_a_signal_handler_forks() -> None:
    assert process(HANDLER, RELAXPY_NUM_THREADS="2") == ""


FIRST = """
from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.native.threads.pool import pool
from tests.exec.native.test_pool import *
sys.setswitchinterval(1e-6)
barrier, found = threading.Barrier(8), set()
def use():
    barrier.wait()
    found.update((pool(), memory()))
in_threads(8, use)
print(len(found))
"""


def test_threads_that_need_the_pool_at_once_share_one() -> None:
    assert process(FIRST, RELAXPY_NUM_THREADS="2") == "2\n"


COUNT = """
assert run(library, 1000)
print(pool.pool().threads, len(os.listdir("/proc/self/task")))
"""


def test_one_thread_is_one_thread() -> None:
    found = process(START + COUNT, RELAXPY_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    assert found == "1 1\n"


def test_the_pool_has_as_many_threads_as_the_process_has_processors() -> None:
    first = f"""
import os
os.environ.pop("{THREADS}", None)
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
"""
    assert process(first + START + COUNT) == "1 1\n"


AWAKE = f"""
{START}
import time
before = os.sched_getaffinity(0)
for pause in (0, 0.002, 0.02, 0.1, 0.1):
    time.sleep(pause)
    assert run(library, 1000)
workers = {{int(name) for name in os.listdir("/proc/self/task")}} - {{os.getpid()}}
# A worker that is woken after its loop has ended needs a moment until it may run anywhere again.
end = time.monotonic() + 20
while any(os.sched_getaffinity(worker) != before for worker in workers):
    assert time.monotonic() < end, "a worker stays away from a processor"
    time.sleep(0.001)
print(len(workers), os.sched_getaffinity(0) == before)
"""


def test_workers_that_were_woken_may_run_on_every_processor_of_the_process() -> None:
    assert process(AWAKE, RELAXPY_NUM_THREADS="3", OPENBLAS_NUM_THREADS="1") == "2 True\n"


def gates() -> Module:
    """`run(words, n)`: the task that starts as number k of n waits until words[2] > k.

    words[0] is the number of tasks that have started, words[1] of those that have ended.
    """
    module = Module(host().triple, host().vector_bits)
    function = module.function("run", [(POINTER, "words"), (I64, "n")])

    def task(f: Function, task: Value, slot: Value, words: Value) -> None:
        def more(word: int) -> Value:
            return f.new(I64, f"atomicrmw add {f.element(words, word, I64)}, i64 1 seq_cst")

        number, gate = more(0), f.element(words, 2, I64)

        def is_closed() -> Value:
            return f.compare("sle", f.new(I64, f"load atomic i64, {gate} seq_cst, align 8"), number)

        f.while_loop((), is_closed, lambda: ())
        more(1)

    parallel(function, function.params[1], function.params[:1], task)
    function.ret()
    return module


SHARES = """
import time
from tests.exec.native.test_pool import *

library = compile_module(gates(), ["run"])
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library["run"])

class Caller:
    def __init__(self):
        self.words = np.zeros(3, np.int64)
        self.thread = threading.Thread(target=run, args=(self.words.ctypes.data, 40))
        self.thread.start()

    def end(self, more):
        self.words[2] += more

def wait(*expected):
    # The numbers of tasks of each caller that have started and not ended.
    end = time.monotonic() + 50
    while (found := [int(c.words[0] - c.words[1]) for c in callers]) != [*expected]:
        assert time.monotonic() < end, (found, expected)
        time.sleep(0.001)

callers = [Caller()]
wait(5)
callers.append(Caller())
wait(5, 1)
callers[0].end(5)
wait(3, 2)
callers.append(Caller())
wait(3, 2, 1)
callers[0].end(3)
wait(2, 2, 1)
for caller in callers:
    caller.end(100)
for caller in callers:
    caller.thread.join()
print([caller.words[:2].tolist() for caller in callers])
"""


def test_callers_have_equal_shares_of_the_threads() -> None:
    found = process(SHARES, RELAXPY_NUM_THREADS="5", OPENBLAS_NUM_THREADS="1")
    assert found == "[[40, 40], [40, 40], [40, 40]]\n"
