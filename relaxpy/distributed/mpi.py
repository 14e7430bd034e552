"""Workers that are processes of MPI.

All communication is non-blocking and polled, so that waiting has an end: the time limit, a message
that another worker has failed, or Ctrl-C.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
from mpi4py import MPI as MPI
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax.op.workers import Array, Combination, Workers, chosen_workers
from relaxpy.launched import GRACE, end_all

_FAILURE, _ENDED = 1, 2
"""The tags of messages: of a failure, and of a worker that has ended after so many operators."""
_LONGEST = 2000
"""The most bytes of such a message."""
_DESCRIBED = 200
"""The bytes that describe a collective operator to the other workers."""
_SPINS = 200
_SLEEP_AFTER = 0.02
"""The seconds of waiting after which the processor is left to others for longer."""


def _of_arrays(combine: np.ufunc) -> MPI.Op:
    """An operation of MPI that keeps NaN, as that of NumPy does."""

    def run(left: Any, right: Any, datatype: MPI.Datatype) -> None:
        dtype = np.dtype(datatype.tocode())
        into = np.frombuffer(right, dtype)
        combine(np.frombuffer(left, dtype), into, out=into)

    return MPI.Op.Create(run, commute=True)


_INTEGERS = {"sum": MPI.SUM, "avg": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
_FLOATS = _INTEGERS | {"max": _of_arrays(np.maximum), "min": _of_arrays(np.minimum)}
_BOOLEANS = {
    "sum": MPI.LOR,
    "max": MPI.LOR,
    "prod": MPI.LAND,
    "min": MPI.LAND,
    "avg": MPI.LAND,
}


def _summed_as(dtype: np.dtype[Any], how: Combination) -> np.dtype[Any]:
    """The datatype in which MPI combines elements: a wider one where there is need for it."""
    if dtype.kind in "iu":
        return np.dtype(np.int64) if how == "avg" and dtype.itemsize < 8 else dtype
    if dtype.kind == "b" or (dtype.kind in "fc" and dtype.itemsize >= 4):
        return dtype
    return np.dtype(np.int32 if np.can_cast(dtype, np.int32) else np.float32)


def _operation(how: Combination, dtype: np.dtype[Any]) -> MPI.Op:
    kind = dtype.kind
    return (_BOOLEANS if kind == "b" else _INTEGERS if kind in "iu" else _FLOATS)[how]


def _contiguous(x: Array) -> Array:
    return x if x.flags.c_contiguous else x.copy("C")


def _bytes(x: Array) -> list[Any]:
    return [x.reshape(-1).view(np.uint8), MPI.BYTE]


class MpiWorkers(Workers):
    """The processes of a communicator, of which this object has a duplicate.

    Creating one is a collective operation of the processes.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        groups: int,
        timeout: float,
        check: bool,
        part: tuple[MpiWorkers, str] | None = None,
    ) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.timeout = timeout
        self._checks = check
        self._all, self._which = part or (self, "")
        """The workers of which these are a part, and which part that is."""
        self._process = os.getpid()
        self._failure: str | None = None
        self._begun = 0
        """The collective operators that this worker has begun."""
        self._ended: dict[int, int] = {}
        """The operators after which other workers have ended."""
        self._kept: list[Any] = []
        self._some: dict[tuple[int, int], MpiWorkers] = {}
        self._lock = threading.Lock()
        self._news: MPI.Comm | None = None
        self._comm, started = comm.Idup()
        self._await(started, "start")
        self._news, started = comm.Idup()
        self._await(started, "start")
        _open.add(self)
        self._group: MpiWorkers | None = None
        if groups > 1:
            self._group = self._part(comm.rank // (comm.size // groups), " in groups")

    @property
    @override
    def group(self) -> Workers:
        return self._group or self

    @override
    def among(self, size: int, stride: int) -> Workers:
        found = self._some.get((size, stride))
        if found is None:
            which = f" among ({size}, {stride})"
            self._begun += 1
            if self._checks:
                self._compare(f"the first operator{which}")
            everybody = self._comm.Ibarrier()  # the call after it waits without an end
            self._await(everybody, f"the first operator{which}")
            block, place = divmod(self.rank, size * stride)
            found = self._part(block * stride + place % stride, which)
            self._some[size, stride] = found
        return found

    def _part(self, color: int, which: str) -> MpiWorkers:
        """The workers that have the same color as this one."""
        comm = self._comm.Split(color)
        workers = MpiWorkers(comm, 1, self.timeout, self._checks, (self, which))
        comm.Free()
        return workers

    # --- collective operators

    @override
    def combined(self, x: Array, how: Combination) -> Array:
        sent, received = self._to_combine(x, how)
        operation = _operation(how, sent.dtype)
        start = partial(self._comm.Iallreduce, sent, received, operation)
        self._run(f"allreduce ({how})", x, start)
        return self._as_stored(received, x, how)

    @override
    def combined_on_first(self, x: Array) -> Array | None:
        sent, received = self._to_combine(x, "sum")
        start = partial(self._comm.Ireduce, sent, received, _operation("sum", sent.dtype), 0)
        self._run("reduce_to_worker0", x, start)
        return self._as_stored(received, x, "sum") if self.rank == 0 else None

    @override
    def combined_parts(self, parts: Array) -> Array:
        sent, _ = self._to_combine(parts, "sum")
        received: Array = np.empty(parts.shape[1:], sent.dtype)
        operation = _operation("sum", sent.dtype)
        start = partial(self._comm.Ireduce_scatter_block, sent, received, operation)
        self._run("reduce_scatter", parts, start)
        return self._as_stored(received, parts, "sum")

    @override
    def collected(self, x: Array) -> Array:
        sent = _contiguous(x)
        received: Array = np.empty((self.size, *x.shape), x.dtype)
        self._run("allgather", x, partial(self._comm.Iallgather, _bytes(sent), _bytes(received)))
        return received

    @override
    def collected_on_first(self, x: Array) -> Array | None:
        sent = _contiguous(x)
        received = np.empty((self.size, *x.shape), x.dtype) if self.rank == 0 else None
        to = None if received is None else _bytes(received)
        self._run("gather_to_worker0", x, partial(self._comm.Igather, _bytes(sent), to, 0))
        return received

    @override
    def of_first(self, x: Array) -> Array:
        moved = x.copy("C") if self.rank == 0 else np.empty(x.shape, x.dtype)
        self._run("broadcast_from_worker0", x, partial(self._comm.Ibcast, _bytes(moved), 0))
        return moved

    @override
    def part_of_first(self, parts: Array) -> Array:
        sent = _bytes(_contiguous(parts)) if self.rank == 0 else None
        received: Array = np.empty(parts.shape[1:], parts.dtype)
        start = partial(self._comm.Iscatter, sent, _bytes(received), 0)
        self._run("scatter_from_worker0", parts, start)
        return received

    def _to_combine(self, x: Array, how: Combination) -> tuple[Array, Array]:
        sent = _contiguous(x.astype(_summed_as(x.dtype, how), copy=False))
        return sent, np.empty(sent.shape, sent.dtype)

    def _as_stored(self, total: Array, x: Array, how: Combination) -> Array:
        if how == "avg" and total.dtype.kind != "b":
            divide = np.floor_divide if total.dtype.kind in "iu" else np.true_divide
            divide(total, self.size, out=total, casting="unsafe")
        return total.astype(x.dtype, copy=False)

    # --- waiting

    def _run(self, name: str, x: Array, start: Callable[[], MPI.Request]) -> None:
        """Run one collective operator to its end."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeCheckError(
                f"{name}: another thread is in a collective operator of the same workers",
                hint="give each thread workers of its own: "
                "with relaxpy.distributed.use(comm.Dup()): ...",
            )
        try:
            if self._failure is not None:
                raise RuntimeCheckError(
                    f"{name}: these workers have failed before: {self._failure}"
                )
            if self._process != os.getpid() or MPI.Is_finalized():
                raise RuntimeCheckError(
                    f"{name}: "
                    + (
                        "MPI has been finalized"
                        if MPI.Is_finalized()
                        else "a process that a worker has forked is not a worker"
                    )
                )
            self._begun += 1
            if self._checks:
                if self._all is not self:
                    self._all._begun += 1
                self._all._compare(f"{name} of {x.dtype} {x.shape}{self._which}")
            try:
                request = start()
                if not request.Test():
                    self._kept = [start]
                    self._await(request, name)
                    self._kept = []
            except MPI.Exception as error:
                self._failure = str(error)
                raise RuntimeCheckError(
                    f"{name} of {x.dtype} {x.shape} fails: {error}", hint=self._advice()
                ) from None
        finally:
            self._lock.release()

    def _await(self, request: MPI.Request, name: str) -> None:
        """Wait until a request is done.

        Errors:
            RuntimeCheckError: that takes too long, or another worker has failed. The memory of the
                request is kept, as MPI may write to it later.
        """
        test = request.Test
        for _ in range(_SPINS):
            if test():
                return
        began = time.monotonic()
        try:
            while not test():
                waited = time.monotonic() - began
                if waited > self.timeout:
                    raise RuntimeCheckError(
                        f"worker {self.rank} has waited {self.timeout:g} s in {name} "
                        f"for the other {self.size - 1}",
                        hint=self._advice(),
                    )
                self._heed_failures()
                if waited > _SLEEP_AFTER:
                    time.sleep(1e-4)
                else:
                    os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise

    def _advice(self) -> str:
        if self._checks:
            return "one of them has ended, or is busy with something else"
        return (
            "workers call the same collective operators in the same order, with tensors of one "
            "shape: use(comm, check=True) or RELAXPY_CHECK_WORKERS=1 finds the first that differs"
        )

    def _compare(self, wanted: str) -> None:
        """Compare what the workers want to run.

        Errors:
            RuntimeCheckError: they want different things.
        """
        own = np.frombuffer(wanted.encode()[:_DESCRIBED].ljust(_DESCRIBED), np.uint8)
        every: Array = np.empty((self.size, _DESCRIBED), np.uint8)
        request = self._comm.Iallgather([own, MPI.BYTE], [every, MPI.BYTE])
        self._await(request, f"the check of {wanted}")
        calls: dict[str, list[int]] = {}
        for number, text in enumerate(every):
            calls.setdefault(text.tobytes().decode(errors="replace").rstrip(), []).append(number)
        if len(calls) > 1:
            lines = (f"{_numbers(numbers)} {call}" for call, numbers in calls.items())
            self._failure = "the workers called different collective operators"
            raise RuntimeCheckError(
                "the workers call different collective operators: " + "; ".join(lines)
            )

    @override
    def close(self) -> None:
        for part in (self._group, *self._some.values()):
            if part is not None:
                part.close()
        self._failure = "they are closed"
        for comm in (self._comm, self._news):
            if comm is not None:
                comm.Free()
        self._news = None

    # --- failures

    def _heed_failures(self) -> None:
        news = self._news
        if news is None:
            return
        status = MPI.Status()
        if news.Iprobe(MPI.ANY_SOURCE, _FAILURE, status):
            text = bytearray(status.Get_count(MPI.BYTE))
            news.Recv([text, MPI.BYTE], status.source, _FAILURE)
            raise OtherWorkerError(
                f"worker {status.source} failed: {text.decode(errors='replace')}"
            )
        if news.Iprobe(MPI.ANY_SOURCE, _ENDED, status):
            count = np.empty(1, np.int64)
            news.Recv(count, status.source, _ENDED)
            self._ended[status.source] = int(count[0])
        for worker, completed in self._ended.items():
            if completed < self._begun:
                raise OtherWorkerError(f"worker {worker} has ended")

    def tell_end(self) -> None:
        """Tell the others that this worker ends, which may wait for it."""
        news = self._news
        if news is not None and self._process == os.getpid() and not MPI.Is_finalized():
            count = np.array([self._begun], np.int64)
            self._send(news, [count, MPI.INT64_T], _ENDED)

    def _send(self, news: MPI.Comm, message: list[Any], tag: int) -> None:
        """Send the last words of this worker to all others."""
        others = (other for other in range(self.size) if other != self.rank)
        sent = [news.Isend(message, other, tag) for other in others]
        end = time.monotonic() + GRACE
        while not MPI.Request.Testall(sent) and time.monotonic() < end:
            time.sleep(1e-3)

    @override
    def tell_failure(self, error: BaseException) -> None:
        if isinstance(error, OtherWorkerError) or self._news is None:
            return
        if self._process != os.getpid() or MPI.Is_finalized():
            return
        if self._failure is None:
            self._failure = f"{type(error).__name__}: {error}"
        text = f"{type(error).__name__}: {error}".encode()[:_LONGEST]
        self._send(self._news, [text, MPI.BYTE], _FAILURE)


_open: WeakSet[MpiWorkers] = WeakSet()


@atexit.register
def _tell_end() -> None:
    """Tell the other workers that this process ends, without waiting for them."""
    for workers in list(_open):
        workers.tell_end()


def end_with_errors() -> None:
    """Let an uncaught error of this process end all, and one of a thread its workers."""
    hook = end_all()
    if _tell_failure not in hook.tellers:
        hook.tellers.append(_tell_failure)
        threading.excepthook = partial(_end_of_thread, threading.excepthook)


def _tell_failure(error: BaseException) -> None:
    for workers in list(_open):
        workers.tell_failure(error)


def _end_of_thread(before: Callable[..., object], failed: threading.ExceptHookArgs) -> None:
    """Print the error that ends a thread, and tell the workers that it chose."""
    before(failed)
    workers = chosen_workers.get()
    if workers is not None and failed.exc_value is not None and failed.exc_type is not SystemExit:
        workers.tell_failure(failed.exc_value)


class OtherWorkerError(RuntimeCheckError):
    """Another worker has failed, whose message this one has."""


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"worker {shown} calls" if len(numbers) == 1 else f"workers {shown} call"
