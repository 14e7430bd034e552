"""Kernels that may take long release the GIL, also over few elements; short ones keep it."""

import threading
import time

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.program.graph import emit
from relaxpy.script import from_source

KERNEL = """
@I.ir_module
class M:
    @T.prim_func(private=True)
    def k(A: T.Buffer((4,), "float32"), I: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
        B[0] = T.float32(0)
        {body}
    @R.function
    def main(x: R.Tensor((4,), "float32"), i: R.Tensor((4,), "int32")):
        return R.call_tir(M.k, (x, i), out_sinfo=R.Tensor((4,), "float32"))
"""
STEP = "B[0] = B[0] * T.float32(0.5) + A[t % 4]"
WHILE = """
        C = T.alloc_buffer((1,), "int32")
        C[0] = 0
        while C[0] < I[0]:
            C[0] = C[0] + 1
            B[0] = B[0] * T.float32(0.5) + A[C[0] % 4]
"""


def loops(*extents: object) -> str:
    text = ""
    for n, extent in enumerate(extents):
        var = "t" if n == len(extents) - 1 else f"o{n}"
        text += f"for {var} in range({extent}):\n{' ' * (12 + 4 * n)}"
    return KERNEL.format(body=text + STEP)


GRAPH = """
@R.function
def main(x: R.Tensor((4, 8), "float32")):
    return {value}
"""


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        (loops(100), True),
        (loops((1 << 18) - 8), True),
        (loops((1 << 18) + 8), False),
        (loops(1 << 10, 1 << 10), False),
        (loops("I[0]"), False),
        (loops("I[0] % 100"), True),
        (loops("I[0] % 1000", "I[1] % 1000"), False),
        (loops(10, "T.if_then_else(o0 < 5, 300000, 2)"), False),
        (KERNEL.format(body=WHILE), False),
        (GRAPH.format(value="R.nn.softmax(x)"), True),
        (GRAPH.format(value="R.cumsum(x, axis=1)"), True),
        (GRAPH.format(value="R.matmul(x, R.permute_dims(x))"), True),
        (GRAPH.replace("4, 8", '"n", 8').format(value="R.exp(x)"), False),
    ],
)
def test_functions_keep_the_gil_if_they_are_short(text, keeps, monkeypatch) -> None:
    found = []
    table = emit.entry_table

    def record(*args: object, is_small: bool = False, **others: object) -> object:
        found.append(is_small)
        return table(*args, is_small=is_small, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(emit, "entry_table", record)
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    relaxpy.compile(from_source(text), "native")
    assert found == [keeps]


def test_other_threads_run_while_a_kernel_over_few_elements_takes_long() -> None:
    main = relaxpy.compile(from_source(loops(100_000_000)), "native")["main"]
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            time.sleep(0.001)
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    main(np.ones(4, "float32"), np.ones(4, "int32"))
    during = ticks[0] - before
    done.set()
    thread.join()
    assert during > 20
