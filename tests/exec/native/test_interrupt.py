"""Signals interrupt native loops that would not end, or only after a long time."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.memo import NodeTable
from relaxpy.relax import BlockBuilder, StringImm
from relaxpy.script import from_source
from tests.fuzz.seed import SEED

COUNT = """
@T.prim_func
def main(limit: T.Buffer((1,), "int64"), out: T.Buffer((2,), "int64")):
    out[0] = T.int64(0)
    out[1] = T.int64(0)
    while out[0] < limit[0]:
        out[0] = out[0] + T.int64(1)
        for i in range(2):
            while out[1] < limit[0] * T.Cast("int64", i):
                out[1] = out[1] + T.int64(1)
"""
FOREVER = np.array([2**61])


@pytest.fixture(scope="module")
def count() -> relaxpy.Executable:
    executable = relaxpy.compile(from_source(COUNT), "native")
    assert all(row.method.startswith("native") for row in executable.report())
    return executable


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """SIGINT raises: in the background of a shell it is ignored, and libraries have handlers."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before is not None:  # a handler that Python has not installed cannot be put back
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def arrived() -> Iterator[list[int]]:
    """A signal arrives after a twentieth and after a third of a second; the numbers of both."""
    found: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: found.append(number))
    timers = [threading.Timer(t, os.kill, (os.getpid(), signal.SIGUSR1)) for t in (0.05, 0.3)]
    for timer in timers:
        timer.start()
    yield found
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGUSR1, old)


def test_the_exception_of_a_handler_ends_all_loops(count, arrived) -> None:
    def refuse(number: int, frame: object) -> None:
        arrived.append(number)
        raise TimeoutError("that is enough")

    signal.signal(signal.SIGUSR1, refuse)
    out = np.zeros(2, "int64")
    with pytest.raises(TimeoutError, match="that is enough"):
        count["main"](FOREVER, out)
    assert out[0] == 1
    assert 0 < out[1] < FOREVER[0]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    count["main"](np.array([1000]), out)
    assert out.tolist() == [1000, 1000]


def test_loops_go_on_after_a_handler_that_returns(count, arrived) -> None:
    out = np.zeros(2, "int64")
    steps = 1 << 22
    while len(arrived) < 2:
        count["main"](np.array([steps]), out)
        assert out.tolist() == [steps, steps]


def test_loops_of_other_threads_are_not_interrupted(count: relaxpy.Executable) -> None:
    out = np.zeros(2, "int64")
    thread = threading.Thread(target=count["main"], args=(np.array([1 << 26]), out))
    old = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    thread.start()
    os.kill(os.getpid(), signal.SIGUSR1)
    thread.join()
    signal.signal(signal.SIGUSR1, old)
    assert out.tolist() == [1 << 26, 1 << 26]


LONG = {
    "tasks": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    for i, t, k in T.grid(64, n, 1000):
        with T.block("sum"):
            vi, vt, vk = T.axis.remap("SRR", [i, t, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + T.exp(A[vi, vk] * T.Cast("float32", vt))
""",
    "one long task": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    for i, t in T.grid(64, n):
        with T.block("sum"):
            vi, vt = T.axis.remap("SR", [i, t])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + T.exp(A[vi, 0] * T.Cast("float32", vt))
""",
    "loops in order": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    for t, k, i in T.grid(n, 1000, 63):
        C[i + 1] = C[i + 1] + A[i, k] * C[i]
""",
    "one long iteration": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    for t, i in T.grid(2, n):
        C[0] = C[0] * T.float32(0.5) + A[t, 0]
""",
    "long iterations of a while loop": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    C[1] = T.float32(0)
    while C[1] < T.float32(3):
        C[1] = C[1] + T.float32(1)
        for i in range(n):
            C[0] = C[0] * T.float32(0.5) + A[i % 64, 0]
""",
    "statements in order": """
@T.prim_func
def main(n: T.int64, A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64,), "float32")):
    for t in range(n):
        for i in range(64):
            C[i] = C[i] * T.float32(0.5) + A[i, 0]
        for i in range(63):
            C[i] = C[i] + C[i + 1]
""",
}


@pytest.mark.parametrize("name", LONG)
def test_interrupts_end_long_kernels(name: str) -> None:
    executable = relaxpy.compile(from_source(LONG[name]), "native")
    assert all(row.method.startswith("native") for row in executable.report())
    a, c = np.ones((64, 1000), "float32"), np.zeros(64, "float32")
    executable["main"](3, a, c)
    expected = c.copy()
    # Threads of the pool compute while the signal waits.
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable["main"](400_000 if name == "tasks" else 1 << 40, a, c)
    timer.join()
    c[:] = 0
    executable["main"](3, a, c)
    np.testing.assert_array_equal(c, expected)


#: Sums of more iterations than any memory has elements: their loops, and what is added.
REPEATED = {
    "one number": ("T.grid(1 << 40, 64, 64)", "RSS", "T.float32(1)"),
    "the same elements": ("T.grid(1 << 40, 64, 64)", "RSS", "A[vi, 0]"),
    "the same products": ("T.grid(1 << 40, 64, 64)", "RSS", "A[vi, 0] * A[vj, 1]"),
    "products many times": ("T.grid(1 << 40, 64, 64, 99)", "RSSR", "A[vi, vk] * A[vj, vk]"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_interrupts_end_sums_of_few_elements(name: str) -> None:
    loops, kinds, value = REPEATED[name]
    more = (", vk", ", k") if len(kinds) == 4 else ("", "")
    text = f"""
@T.prim_func
def main(A: T.Buffer((64, 1000), "float32"), C: T.Buffer((64, 64), "float32")):
    for t, i, j{more[1]} in {loops}:
        with T.block("sum"):
            vt, vi, vj{more[0]} = T.axis.remap("{kinds}", [t, i, j{more[1]}])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + {value}
"""
    executable = relaxpy.compile(from_source(text), "native")
    assert all(row.method.startswith("native") for row in executable.report())
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable["main"](np.ones((64, 1000), "float32"), np.zeros((64, 64), "float32"))
    timer.join()


def test_interrupts_end_long_programs() -> None:
    lines = "\n".join(f"            v{n + 1} = R.exp(R.matmul(v{n}, w))" for n in range(100))
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(v0: R.Tensor(("n", "n"), "float32"), w: R.Tensor(("n", "n"), "float32")):
        with R.dataflow():
{lines}
            R.output(v100)
        return v100
"""
    executable = relaxpy.compile(from_source(text), "native")
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    x = np.zeros((2000, 2000), "float32")
    with pytest.raises(KeyboardInterrupt):
        executable["main"](x, x)
    timer.join()
    assert executable["main"](x[:4, :4], x[:4, :4]).shape == (4, 4)


class Stop(BaseException):
    """What the handler of a signal raises."""


@contextmanager
def a_signal_soon(draw: random.Random, seconds: float) -> Iterator[None]:
    """A signal whose handler raises arrives while the body runs, or not at all."""
    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def raising() -> Iterator[random.Random]:
    """Signals of the timer raise; the numbers that decide when they arrive."""

    def stop(number: int, frame: object) -> None:
        raise Stop

    old = signal.signal(signal.SIGALRM, stop)
    yield random.Random(SEED)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


FAILING = """
@I.ir_module
class Failing:
    @T.prim_func
    def gather(a: T.handle, i: T.Buffer((3,), "int64"), b: T.Buffer((3,), "float32")):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        P = T.alloc_buffer((3,), "int64")
        for k in range(3):
            P[k] = i[k] - 1
        for k in range(3):
            b[k] = A[P[k]]
    @R.function
    def main(x: R.Tensor(("n",), "float32"), i: R.Tensor(("m",), "int64")):
        return R.take(x, i)
    @R.function
    def cast(x: R.Tensor(ndim=1, dtype="float32")):
        y = R.match_cast(R.add(x, x), R.Tensor((7,), "float32"))
        return y
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("target", ["native", "numpy"])
def test_a_signal_while_an_error_is_raised_is_that_error_or_the_one_of_the_handler(target, raising):
    """None hides the other one, nothing else is raised, and the next call is right."""
    ex = relaxpy.compile(from_source(FAILING), target)
    x, wrong, right = np.arange(4, dtype="float32"), np.array([1, 50, 2]), np.array([1, 2, 3])
    calls = (("gather", x, wrong, np.zeros(3, "float32")), ("main", x, wrong), ("cast", x))
    for name, *args in calls:
        for _ in range(200):
            with pytest.raises((Stop, RelaxpyError)) as caught, a_signal_soon(raising, 5e-4):
                ex[name](*args)
            if isinstance(caught.value, RelaxpyError):
                causes = (caught.value.__cause__, caught.value.__context__)
                assert not any(isinstance(cause, Stop) for cause in causes)
        assert ex["main"](x, right).tolist() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_does_not_keep_the_memo_of_a_node_that_is_gone(raising: random.Random) -> None:
    """Another node with its address would get its value, as the exception would be ignored."""
    table: NodeTable[int] = NodeTable()
    for _ in range(1000):
        with suppress(Stop), a_signal_soon(raising, 2e-4):
            for count in range(200):
                node = StringImm("")
                assert table.get(node) is None
                table[node] = count
                del node


def test_a_signal_leaves_no_scope_of_a_builder_open(raising: random.Random) -> None:
    for _ in range(1000):
        with suppress(Stop), a_signal_soon(raising, 2e-4):
            builder = BlockBuilder()
            for _ in range(200):
                with builder.testing_scope():
                    pass
        assert BlockBuilder.current() is None
