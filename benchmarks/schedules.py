"""What schedules of a product of matrices do, where its loops run as they are written.

`PYTHONPATH=. python benchmarks/schedules.py` prints, for each schedule of a product of two matrices
of 512 rows and columns in float32, the least of some times in milliseconds: those that pass, and
those of the processors. The last line is the kernel that `compile` makes without a request.
"""

from __future__ import annotations

import time

import numpy as np

import relaxpy
from relaxpy import tir
from relaxpy.script import tir as T

SIZE = 512
RUNS = 5


@T.prim_func
def matmul(
    A: T.Buffer((512, 512), "float32"),
    B: T.Buffer((512, 512), "float32"),
    C: T.Buffer((512, 512), "float32"),
):
    """C = A @ B."""
    for i, j, k in T.grid(512, 512, 512):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def naive() -> tir.Schedule:
    """The loops i, j, k: the columns of B are read one element after the other."""
    return tir.Schedule(matmul)


def reordered() -> tir.Schedule:
    """The loops i, k, j: rows of B and of C are read in the order of memory."""
    sch = naive()
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    return sch


def tiled() -> tir.Schedule:
    """Tiles of 32 rows, columns and products, which are in the nearest cache."""
    sch = naive()
    i, j, k = sch.get_loops("C")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, [None, 32]) for loop in (i, j, k))
    sch.reorder(i0, j0, k0, i1, k1, j1)
    return sch


def vectorised() -> tir.Schedule:
    """The tiles, with the columns of each as lanes of vectors."""
    sch = tiled()
    sch.vectorize(sch.get_loops("C")[-1])
    return sch


def parallel() -> tir.Schedule:
    """The same, with rows of tiles on several threads."""
    sch = vectorised()
    sch.parallel(sch.get_loops("C")[0])
    return sch


def measured(executable: relaxpy.Executable) -> tuple[float, float]:
    """The least time that passes, and that of the processors, in milliseconds."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE), "float32")
    c = np.empty((SIZE, SIZE), "float32")
    executable["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter(), time.process_time()
        executable["main"](a, b, c)
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = (1e3 * min(t) for t in zip(*times, strict=True))
    return wall, cpu


def main() -> None:
    """Print the table."""
    print(f"{'schedule':12} {'ms':>8} {'ms of processors':>18}")
    for schedule in (naive, reordered, tiled, vectorised, parallel):
        ex = relaxpy.compile(schedule().mod, target="native", schedules="as written")
        wall, cpu = measured(ex)
        print(f"{schedule.__name__:12} {wall:8.1f} {cpu:18.1f}")
    wall, cpu = measured(relaxpy.compile(naive().mod, target="native"))
    print(f"{'compile':12} {wall:8.1f} {cpu:18.1f}")


if __name__ == "__main__":
    main()
