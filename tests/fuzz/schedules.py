"""Random kernels that collide, recur and share memory: their results, and the order of their plans.

`python -m tests.fuzz.schedules COUNT [SEED]` compiles and runs COUNT kernels, compares them with
their text performed in its order, and holds their plans and the programs for native code against
the checker of schedules.
"""

from __future__ import annotations

import sys
import traceback
from random import Random

import numpy as np

from relaxpy.exec.kernel import compile_kernel
from relaxpy.exec.kernel.plan.blocking import in_tiles
from relaxpy.script import from_source
from tests.exec.kernel.program_checker import program_fault
from tests.exec.kernel.schedule_checker import first_fault
from tests.exec.kernel.schedule_text import TextRun
from tests.exec.kernel.support import function_of
from tests.fuzz.adversary import SIZE, Adversary
from tests.fuzz.seed import SEED

SHAPES = {"X": (SIZE,), "Y": (SIZE,), "Z": (SIZE, SIZE), "W": (SIZE, SIZE), "S": ()}
LENGTHS = (12, 16, 22)
"""How many lines a kernel has before no more loops, branches and blocks begin."""


def kernel(seed: object, most: int) -> str:
    """The text of the kernel of a seed."""
    return Adversary(Random(str(seed)), most=most).text()


def perform(text: str, rows: int, places: int, seed: object) -> None:
    """Run a kernel on random numbers, with so many rows of U and elements of P.

    Errors:
        AssertionError: it does not do what its text says, or its plan or the program of that for
            native code is in no legal order.
    """
    func = from_source(text)
    rng = np.random.default_rng(Random(str(seed)).getrandbits(32))
    arrays = [rng.integers(-3, 4, shape).astype(np.int32) for shape in SHAPES.values()]
    own = rng.integers(-3, 4, (rows, places)).astype(np.int32)
    arguments = (*arrays, rng.integers(0, SIZE, places), own)
    wanted = TextRun(func, arguments)
    compiled = [array.copy() for array in arguments]
    kernel = compile_kernel(func, "kernel")
    function_of(kernel)(*compiled)
    for name, found in zip([*SHAPES, "P", "U"], compiled, strict=True):
        expected = [wanted.values[(name, place), 0] for place in range(found.size)]
        assert found.reshape(-1).tolist() == expected, name
    fault = first_fault(func, arguments, in_tiles(kernel.plan), wanted)
    assert fault is None, fault
    fault = program_fault(func, arguments, kernel.plan, wanted)
    assert fault is None, fault


def main(count: int, seed: str) -> int:
    """Report the failures of `count` kernels; 1 if there are any."""
    bad = 0
    for number in range(count):
        name = f"{seed}/{number}"
        text = kernel(name, LENGTHS[number % len(LENGTHS)])
        try:
            perform(text, 1 + number // 4 % 4, 1 + number % 4, name)
        except Exception:  # whatever it is, it is reported with its kernel
            bad += 1
            print(f"--- {name}\n{text}\n{traceback.format_exc()}", flush=True)
    print(f"{count} kernels for the scheduler from seed {seed}, {bad} failures")
    return int(bad > 0)


if __name__ == "__main__":
    asked, begin, *_ = [*sys.argv[1:], "", ""]
    sys.exit(main(int(asked or 1000), begin or SEED))
