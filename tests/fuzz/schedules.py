"""Random kernels that collide, recur and share memory: their results, and the order of their plans.

`python -m tests.fuzz.schedules COUNT [SEED]` compiles and runs COUNT kernels, compares them with
their text performed in its order, and holds their plans and the programs for native code against
the checker of schedules, half of them in small blocks. A third has chains of products of matrices.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import numpy as np

from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.script import from_source
from tests.exec.loops.program_checker import program_fault, small_blocks
from tests.exec.loops.schedule_checker import first_fault
from tests.exec.loops.schedule_text import TextRun
from tests.exec.loops.support import function_of
from tests.fuzz.adversary import SIZE, Adversary
from tests.fuzz.chains import Chain
from tests.fuzz.progress import command_line, noted, report

SHAPES = {"X": (SIZE,), "Y": (SIZE,), "Z": (SIZE, SIZE), "W": (SIZE, SIZE), "S": ()}
LENGTHS = (12, 16, 22)
"""How many lines a kernel has before no more loops, branches and blocks begin."""


def kernel(seed: object, most: int) -> str:
    """The text of the kernel of a seed."""
    return Adversary(Random(str(seed)), most=most).text()


def arguments_of(rows: int, places: int, seed: object) -> tuple[np.ndarray, ...]:
    """Random numbers for a kernel, with so many rows of U and elements of P."""
    rng = np.random.default_rng(Random(str(seed)).getrandbits(32))
    arrays = [rng.integers(-3, 4, shape).astype(np.int32) for shape in SHAPES.values()]
    own = rng.integers(-3, 4, (rows, places)).astype(np.int32)
    return (*arrays, rng.integers(0, SIZE, places), own)


def perform(text: str, arguments: tuple[np.ndarray, ...], *, small: bool) -> None:
    """Run a kernel, and replay its plan and its program, perhaps in small blocks.

    Errors:
        AssertionError: it does not do what its text says, or its plan or the program of that for
            native code is in no legal order.
    """
    func = from_source(text)
    wanted = TextRun(func, arguments)
    compiled = [array.copy() for array in arguments]
    kernel = compile_kernel(func, "kernel")
    function_of(kernel)(*compiled)
    for buffer, found in zip(func.buffer_map.values(), compiled, strict=True):
        name = buffer.name
        expected = [wanted.values[(name, place), 0] for place in range(found.size)]
        assert found.reshape(-1).tolist() == expected, name
    with small_blocks() if small else nullcontext():
        fault = first_fault(func, arguments, in_tiles(kernel.plan), wanted)
        assert fault is None, fault
        fault = program_fault(func, arguments, kernel.plan, wanted)
        assert fault is None, fault


def check(name: str, number: int) -> None:
    """Compile and run the kernel of a seed, or the chain of products.

    Errors:
        AssertionError: a result or the order of its plan is wrong.
    """
    if number % 3:
        text = kernel(name, LENGTHS[number % len(LENGTHS)])
        arguments = arguments_of(1 + number // 4 % 4, 1 + number % 4, name)
    else:
        chain = Chain(Random(name))
        text, arguments = chain.text(), chain.arguments(number)
    with noted(text):
        perform(text, arguments, small=number % 2 == 1)


def main(count: int, seed: str) -> int:
    """Report the failures of `count` kernels; 1 if there are any."""
    return report("schedules", count, seed, check)


if __name__ == "__main__":
    command_line(main)
