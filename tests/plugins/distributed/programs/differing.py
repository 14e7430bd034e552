"""Two workers that call the same operators, or differ in one of several ways; each names them.

The arguments are a seed and the number of calls; each worker prints how many were as expected.
What is varied: operator, combination, datatype, shape, and whether the sizes are symbolic.
"""

import random
import sys
import time

import numpy as np
from mpi4py import MPI

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import from_source

CALLS = (
    *("allreduce(x, 'sum')", "allreduce(x, 'max')", "allreduce(x, 'avg')", "allgather(x, 2)"),
    *("reduce_scatter(x, 2)", "broadcast_from_worker0(x)", "scatter_from_worker0(x, 2)"),
    *("gather_to_worker0(x, 2)", "reduce_to_worker0(x)"),
)
DTYPES = ("float32", "int32", "float16", "float64", "bool", "int8")
SHAPES = ((4, 4), (8, 4), (4, 2), (16,), (2, 2, 4), (5000, 4), (5002, 4))


def other(rng: random.Random, values: tuple, value: object) -> object:
    return rng.choice([v for v in values if v != value])


def main(seed: str, count: int) -> int:
    rng, right = random.Random(seed), 0
    for _ in range(count):
        one = rng.choice(CALLS), rng.choice(DTYPES), rng.choice(SHAPES)
        two = list(one)
        kind = rng.randrange(4)
        if kind < 3:
            two[kind] = other(rng, (CALLS, DTYPES, SHAPES)[kind], one[kind])
        call, dtype, shape = one if MPI.COMM_WORLD.rank == 0 else two
        sizes = repr(shape)
        if rng.random() < 0.5 and len(shape) == 2:
            sizes = "('n', 'm')"
        text = f"@R.function\ndef main(x: R.Tensor({sizes}, '{dtype}')):\n    return R.ccl.{call}"
        run = relaxpy.compile(from_source(text))["main"]
        began = time.monotonic()
        with relaxpy.distributed.use(timeout=60):
            try:
                run(np.ones(shape, dtype))
                right += kind == 3
            except RuntimeCheckError as error:
                message = str(error)
                right += kind < 3 and "the workers call different collective operators" in message
                if kind == 3:
                    raise
        assert time.monotonic() - began < 30
    return right


if __name__ == "__main__":
    print(f"<{main(sys.argv[1], int(sys.argv[2]))}>")  # the lines of workers may be joined
