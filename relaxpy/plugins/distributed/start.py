"""Choose the workers that a program runs on; by default those that started with it."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from relaxpy.errors import MisuseError, RuntimeCheckError, check_type, unexpected
from relaxpy.ir.ops.distributed import Alone, Workers, chosen_workers, started
from relaxpy.support.entry import user_facing
from relaxpy.support.launched import ended_with_others, is_helper, size_variable

if TYPE_CHECKING:
    from relaxpy.plugins.distributed.mpi import MpiWorkers

CHECK = "RELAXPY_CHECK_WORKERS"
TIME_LIMIT = 300.0

_lock = threading.Lock()


def started_workers() -> Workers:
    """The processes that were started together with this one.

    Errors:
        ModuleNotFoundError: a launcher of MPI started them, and mpi4py is not installed.
        MisuseError: a worker started this process.
    """
    mpi, launcher_says = sys.modules.get("mpi4py.MPI"), size_variable()
    if launcher_says is not None and is_helper():
        raise MisuseError(
            "a process that a worker has started is not a worker",
            hint=f"start a program of its own without the environment variable {launcher_says}",
        )
    if launcher_says is None and (
        mpi is None or not mpi.Is_initialized() or mpi.COMM_WORLD.size == 1
    ):
        return Alone()
    with _lock:
        if not started:
            started.append(_workers(None, 1, TIME_LIMIT, None))
    return started[0]


def _workers(comm: Any, groups: int, timeout: float, check: bool | None) -> MpiWorkers:
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise unexpected(timeout, "timeout is a positive number of seconds")
    try:
        with _limited(timeout):
            from relaxpy.plugins.distributed.mpi import MPI, MpiWorkers, end_with_errors
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "several processes communicate by the package mpi4py: pip install 'relaxpy[mpi]'",
            name=error.name,
        ) from None
    if comm is None:
        comm = MPI.COMM_WORLD
    check_type(
        comm,
        MPI.Intracomm,
        "expected a communicator of mpi4py",
        hint="pass mpi4py.MPI.COMM_WORLD, or a part of it",
    )
    if not isinstance(groups, int) or groups < 1 or comm.size % groups:
        raise MisuseError(
            f"{comm.size} workers cannot be divided into {groups!r:.20} groups of one size",
            about=groups,
        )
    if check is None and (chosen := os.environ.get(CHECK)):
        check = chosen != "0"
    try:
        workers = MpiWorkers(comm, groups, timeout, check)
    except MPI.Exception as error:
        raise RuntimeCheckError(
            f"MPI cannot start these workers: {error}",
            hint="with relaxpy.distributed.use(...): ... releases what they use",
        ) from None
    end_with_errors()
    return workers


@contextmanager
def _limited(timeout: float) -> Iterator[None]:
    """End this process if other workers do not start, for which MPI waits without a limit."""
    if "mpi4py.MPI" in sys.modules:
        yield
        return
    if timeout < threading.TIMEOUT_MAX:
        faulthandler.dump_traceback_later(timeout, exit=True)
    try:
        with ended_with_others():
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Chosen:
    """Workers that a program chose, until the end of a `with` if it is used by one."""

    def __init__(self, workers: Workers, is_owner: bool) -> None:
        self.workers = workers
        self._is_owner = is_owner
        self._is_over = False
        self._token: Token[Workers | None] = chosen_workers.set(workers)

    def __enter__(self) -> Workers:
        if self._is_over:
            raise MisuseError(
                "these workers have been used by a with already",
                hint="call relaxpy.distributed.use again",
                about=self,
            )
        return self.workers

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        chosen_workers.reset(self._token)
        if error is not None:
            self.workers.tell_failure(error)
        elif self._is_owner:
            self.workers.close()


@user_facing
def use(
    comm: Any = None, *, groups: int = 1, timeout: float = TIME_LIMIT, check: bool | None = None
) -> Chosen:
    """Let collective operators run among the processes of a communicator of mpi4py.

    All its processes call this together. The choice holds for this thread, and in a `with` until
    its end; if that is an error, the other processes are told. An error that ends one process ends
    all of them. Threads that run programs at the same time need communicators of their own.

    `comm` is `MPI.COMM_WORLD` by default, or an object of a class derived from `Workers`. `groups`
    divides the processes into groups of neighbours, among which operators with `in_group` run.
    A worker that has waited `timeout` seconds for the others raises. Every collective operator
    first compares what the workers want to run, and names those that differ. With `check`, these
    are all workers, also those of other groups; without it, if it is False, nothing is compared.
    The environment variable RELAXPY_CHECK_WORKERS, 1 or 0, is its default.

    Errors:
        MisuseError (also TypeError, ValueError): `comm` is not a communicator, or cannot be divided
            into `groups` equal groups, or `timeout` is not a positive number.
        RuntimeCheckError: the other processes do not call it, too, or MPI has no more room.
        ModuleNotFoundError: mpi4py is not installed.
    """
    if isinstance(comm, Workers):
        return Chosen(comm, is_owner=False)
    return Chosen(_workers(comm, groups, timeout, check), is_owner=True)
