"""Workers that fail in one of several ways, which the first argument names."""

import os
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import ir as I, relax as R

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank


@I.ir_module
class Program:
    @R.function
    def total(x: R.Tensor(("n",), "float32")):
        return R.ccl.allreduce(x, "sum")

    @R.function
    def joined(x: R.Tensor(("n",), "float32")):
        return R.ccl.allgather(x, 2)

    @R.function
    def of_first(x: R.Tensor(("n",), "float32")):
        return R.ccl.broadcast_from_worker0(x)

    @R.function
    def of_three(x: R.Tensor(("n",), "float32")):
        return R.ccl.allgather(x, 3)

    @R.function
    def of_one(x: R.Tensor(("n",), "float32")):
        return R.ccl.allreduce(x, "sum", among=(1, 1))


PROGRAM = relaxpy.compile(Program)
X = np.ones(4, "float32")


def uncaught():
    relaxpy.distributed.use()
    if RANK == 1:
        raise ValueError("this worker's own fault")
    PROGRAM["total"](X)


def before_the_first():
    """An error of a worker for which the others wait in the first operator."""
    if RANK == 1:
        raise ValueError("this worker's own fault")
    PROGRAM["total"](X)


def in_a_thread():
    def work():
        relaxpy.distributed.use(comm, timeout=60)
        PROGRAM["total"](X)
        if RANK == 1:
            raise ValueError("this worker's own fault")
        PROGRAM["total"](X)

    comm = WORLD.Dup()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    comm.Barrier()
    sys.exit(1)


def ends_early():
    PROGRAM["total"](X)
    if RANK == 1:
        sys.exit()
    PROGRAM["total"](X)


def first_ends():
    with relaxpy.distributed.use():
        PROGRAM["total"](X)
    relaxpy.distributed.use()
    if RANK == 1:
        time.sleep(2)
    found = PROGRAM["of_first"](np.full(4, 7 - RANK, "float32"))
    if RANK == 1:
        print(found[0])


def alone_at_start():
    if RANK == 1:
        time.sleep(2)
    else:
        relaxpy.distributed.use(timeout=0.5)


def finalized():
    PROGRAM["total"](X)
    MPI.Finalize()
    PROGRAM["total"](X)


def forked():
    PROGRAM["total"](X)
    child = os.fork()
    if child == 0:
        try:
            PROGRAM["total"](X)
        except RuntimeCheckError as error:
            is_refused = "a process that a worker has forked is not a worker" in str(error)
            os._exit(0 if is_refused else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(PROGRAM["total"](X), 2 * X)


def in_with():
    caught = ""
    try:
        with relaxpy.distributed.use():
            if RANK == 1:
                raise ValueError("this worker's own fault")
            PROGRAM["total"](X)
    except (ValueError, RuntimeCheckError) as error:
        caught = str(error)
    print(f"{RANK}: {caught}")


def too_late(check=None):
    with relaxpy.distributed.use(timeout=0.5, check=check):
        if RANK == 1:
            time.sleep(2)
        PROGRAM["total"](X)


def too_late_unchecked():
    too_late(check=False)


def different():
    with relaxpy.distributed.use(check=True):
        PROGRAM["total"](X)
        PROGRAM["total" if RANK == 0 else "joined"](X)


def different_groups():
    with relaxpy.distributed.use(check=True, groups=2):
        PROGRAM["total" if RANK == 0 else "of_first"](X)


def different_among():
    with relaxpy.distributed.use(check=True):
        PROGRAM["of_one"](X)
        PROGRAM["total" if RANK == 0 else "of_one"](X)


def different_shapes():
    with relaxpy.distributed.use(check=True):
        PROGRAM["total"](X[: 2 + RANK])


def wrong_number():
    with relaxpy.distributed.use():
        PROGRAM["of_three"](X)


def many_times():
    """More communicators than MPI has at once."""
    for _ in range(3000):
        with relaxpy.distributed.use(groups=2) as workers:
            pass
    with relaxpy.distributed.use():
        assert PROGRAM["total"](X)[0] == 2
    try:
        workers.combined(X, "sum")
    except RuntimeCheckError as error:
        print(f"{RANK}: {error}")


def several_threads():
    """Two threads with communicators of their own, and two that share one."""
    found, refused = {}, []

    def work(number, comm):
        with relaxpy.distributed.use(comm):
            for _ in range(50):
                found[number] = PROGRAM["total"](X * (number + 1))

    comms = [WORLD.Dup() for _ in range(2)]
    threads = [threading.Thread(target=work, args=case) for case in enumerate(comms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [list(found[k]) for k in range(2)] == [[2] * 4, [4] * 4]

    workers = relaxpy.distributed.use(timeout=20).workers
    entered = threading.Event()

    def slow():
        with relaxpy.distributed.use(workers):
            entered.set()
            PROGRAM["total"](X)

    if RANK == 0:
        thread = threading.Thread(target=slow)
        thread.start()
        entered.wait()
        time.sleep(0.3)  # it waits for worker 1
        try:
            PROGRAM["total"](X)
        except RuntimeCheckError as error:
            refused.append(str(error))
        WORLD.send("go on", 1)
        thread.join()
        assert "another thread is in a collective operator" in refused[0]
    else:
        WORLD.recv(source=0)
        PROGRAM["total"](X)
    print(f"{RANK}: both")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
