"""Workers that are processes of MPI.

All communication is non-blocking and polled, so that waiting has an end: the time limit, a message
that another worker has failed, or Ctrl-C.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import time
from collections.abc import Callable
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, Literal, TypeAlias
from weakref import WeakSet

import numpy as np
from mpi4py import MPI as MPI
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.distributed import Combination, Workers, chosen_workers
from relaxpy.support.launched import GRACE, end_all, ended_processes, ended_text

_FAILURE, _ENDED = 1, 2
"""The tags of messages: a failure, and the end of a worker after a number of operators."""
_LONGEST = 2000
"""The most bytes of such a message."""
_DESCRIBED = 200
"""The bytes that describe a collective operator to the other workers."""
_SPINS = 50
_SLEEP_AFTER = 0.02
"""The seconds of waiting after which a worker yields the CPU for longer."""
_INTERVAL = 0.2
"""The seconds of waiting between looks for processes that have ended."""
_PERSISTENT = MPI.Get_version() >= (4, 0)
"""True if MPI has persistent collective requests."""
_FEW = 1 << 14
"""The most bytes that are copied into the buffers of a persistent request."""
_KEPT = 64
"""The most persistent requests of one communicator."""
_Call: TypeAlias = Literal[
    "allreduce", "reduce", "reduce_scatter_block", "allgather", "gather", "bcast", "scatter"
]
_NAMES = {
    "reduce": "reduce_to_worker0",
    "reduce_scatter_block": "reduce_scatter",
    "gather": "gather_to_worker0",
    "bcast": "broadcast_from_worker0",
    "scatter": "scatter_from_worker0",
}
"""The names of operators that MPI calls otherwise."""
_Exchange: TypeAlias = tuple[MPI.Request, Array | None, Array]
"""A request with the memory that it sends and receives."""


def _of_arrays(combine: np.ufunc) -> MPI.Op:
    """An operation of MPI that keeps NaN, as that of NumPy does."""

    def run(left: Any, right: Any, datatype: MPI.Datatype) -> None:
        dtype = np.dtype(datatype.tocode())
        into = np.frombuffer(right, dtype)
        combine(np.frombuffer(left, dtype), into, out=into)

    return MPI.Op.Create(run, commute=True)


_INTEGERS = {"sum": MPI.SUM, "avg": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
_FLOATS = _INTEGERS | {"max": _of_arrays(np.maximum), "min": _of_arrays(np.minimum)}
_BOOLEANS = {"sum": MPI.LOR, "max": MPI.LOR, "prod": MPI.LAND, "min": MPI.LAND, "avg": MPI.LAND}


_MOVED = frozenset("?bhilqBHILQfd")
"""The datatypes that MPI has."""


@cache
def _combining(dtype: np.dtype[Any], how: Combination) -> tuple[np.dtype[Any], MPI.Op]:
    """How MPI combines elements: in a wider datatype where there is need for it."""
    match dtype.kind:
        case "b":
            return dtype, _BOOLEANS[how]
        case "i" | "u":
            wide = how == "avg" and dtype.itemsize < 8
            return np.dtype(np.int64) if wide else dtype, _INTEGERS[how]
        case "f" | "c" if dtype.itemsize >= 4:
            return dtype, _FLOATS[how]
        case _ if np.can_cast(dtype, np.int32):
            return np.dtype(np.int32), _INTEGERS[how]
        case _:
            return np.dtype(np.float32), _FLOATS[how]


def _moved(x: Array) -> Any:
    """The memory of a tensor as MPI moves it: by elements, or by bytes if it lacks the datatype."""
    return x if x.dtype.char in _MOVED else [x.reshape(-1).view(np.uint8), MPI.BYTE]


@lru_cache(1024)
def _number(
    call: _Call, how: Combination | None, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> int:
    """A number for an operator and its operand, the same in all processes."""
    text = f"{call} {how} {dtype} {shape}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest())


def _title(call: _Call, how: Combination | None) -> str:
    name = _NAMES.get(call, call)
    return f"{name} ({how})" if call == "allreduce" else name


class MpiWorkers(Workers):
    """The processes of a communicator, of which this object has a duplicate.

    Creating one is a collective operation of the processes.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        groups: int,
        timeout: float,
        check: bool | None,
        part: tuple[MpiWorkers, str] | None = None,
    ) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.timeout = timeout
        self._checks = check
        """True if all workers compare their operators; None if those that take part do."""
        self._agreement: tuple[MPI.Prequest | None, Array, Array] | None = None
        """The request that finds the largest and the smallest number, and its buffers."""
        self._all, self._which = part or (self, "")
        """The workers of which these are a part, and which part that is."""
        self._failure: str | None = None
        self._begun = 0
        """The collective operators that this worker has begun."""
        self._ended: dict[int, int] = {}
        """The operators after which other workers have ended."""
        self._kept: list[object] = []
        self._exchanges: dict[object, _Exchange] = {}
        """Exchanges of few bytes by operator, shape and dtype, the same on all workers."""
        self._some: dict[tuple[int, int], MpiWorkers] = {}
        self._lock = threading.Lock()
        self._news: MPI.Comm | None = None
        self._members, self._looked = comm.group, 0.0
        self._comm, started = comm.Idup()
        self._await(started, "start")
        self._news, started = comm.Idup()
        self._await(started, "start")
        _open.add(self)
        self._group: MpiWorkers | None = None
        if groups > 1:
            self._begun += 1
            everybody = self._comm.Ibarrier()  # the call after it waits without an end
            self._await(everybody, "start")
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
        return self._run("allreduce", x, how)

    @override
    def combined_on_first(self, x: Array) -> Array | None:
        total = self._run("reduce", x, "sum")
        return total if self.rank == 0 else None

    @override
    def combined_parts(self, parts: Array) -> Array:
        return self._run("reduce_scatter_block", parts, "sum")

    @override
    def collected(self, x: Array) -> Array:
        return self._run("allgather", x)

    @override
    def collected_on_first(self, x: Array) -> Array | None:
        every = self._run("gather", x)
        return every if self.rank == 0 else None

    @override
    def of_first(self, x: Array) -> Array:
        return self._run("bcast", x)

    @override
    def part_of_first(self, parts: Array) -> Array:
        return self._run("scatter", parts)

    def _run(self, call: _Call, x: Array, how: Combination | None = None) -> Array:
        """The result for this worker of the collective operator of MPI with this name."""
        if not self._lock.acquire(False):
            raise RuntimeCheckError(
                f"{_title(call, how)}: another thread is in a collective operator of the same "
                "workers",
                hint="give each thread workers of its own: "
                "with relaxpy.distributed.use(comm.Dup()): ...",
            )
        try:
            if self._failure is not None or MPI.Is_finalized():
                cause = "MPI has been finalized"
                if self._failure is not None:
                    cause = f"these workers can no longer be used: {self._failure}"
                raise RuntimeCheckError(f"{_title(call, how)}: {cause}")
            self._begun += 1
            if self._checks:
                if self._all is not self:
                    self._all._begun += 1
                self._all._compare(f"{_title(call, how)} of {x.dtype} {x.shape}{self._which}")
            elif self._checks is None and self.size > 1:
                self._agree(call, x, how)
            try:
                exchange = self._exchanges.get((call, how, x.shape, x.dtype))
                if exchange is None:
                    exchange = self._exchange(call, x, how)
                request, sent, received = exchange
                if isinstance(request, MPI.Prequest):
                    if sent is not None:
                        sent[...] = x
                    request.Start()
                if not request.Test():
                    self._await(request, _title(call, how), exchange)
                if isinstance(request, MPI.Prequest):
                    received = received.copy()
            except MPI.Exception as error:
                self._failure = str(error)
                raise RuntimeCheckError(
                    f"{_title(call, how)} of {x.dtype} {x.shape} fails: {error}",
                    hint=self._advice(),
                ) from None
        finally:
            self._lock.release()
        if how == "avg" and received.dtype.kind != "b":
            divide = np.floor_divide if received.dtype.kind in "iu" else np.true_divide
            divide(received, self.size, out=received, casting="unsafe")
        return received if received.dtype is x.dtype else received.astype(x.dtype)

    def _exchange(self, call: _Call, x: Array, how: Combination | None) -> _Exchange:
        """The request of an operator and its buffers: one that has begun, or one for few bytes.

        The latter is a persistent request, which costs half as much as a new one.
        """
        first = self.rank == 0
        sends, receives = True, True
        memory: Callable[[Array], Any] = _moved
        dtype, shape = x.dtype, x.shape
        rest: tuple[Any, ...] = ()
        if how is not None:
            dtype, operation = _combining(x.dtype, how)
            memory, rest = np.asarray, (operation,)
        match call:
            case "allreduce":
                pass
            case "reduce":
                receives, rest = first, (*rest, 0)
            case "reduce_scatter_block":
                shape = x.shape[1:]
            case "allgather":
                shape = (self.size, *x.shape)
            case "gather":
                receives, shape, rest = first, (self.size, *x.shape), (0,)
            case "bcast":
                sends, rest = first, (0,)
            case "scatter":
                sends, shape, rest = first, x.shape[1:], (0,)
        few = _PERSISTENT and max(x.size, prod(shape)) * dtype.itemsize <= _FEW
        received: Array = np.empty(shape if receives else 0, dtype)
        sent: Array | None = None
        if call == "bcast":
            if sends:
                sent = received
                sent[...] = x
            buffers = [memory(received)]
        else:
            if sends:
                sent = np.empty(x.shape, dtype) if few else np.ascontiguousarray(x, dtype)
            buffers = [
                None if sent is None else memory(sent),
                memory(received) if receives else None,
            ]
        request: MPI.Request
        if not few:
            request = getattr(self._comm, f"I{call}")(*buffers, *rest)
            return request, sent, received
        if len(self._exchanges) == _KEPT:
            self._forget()
        request = getattr(self._comm, f"{call.capitalize()}_init")(*buffers, *rest)
        self._exchanges[call, how, x.shape, x.dtype] = exchange = request, sent, received
        return exchange

    def _forget(self) -> None:
        """Free the persistent requests, without one that was given up and may go on."""
        used = [*self._exchanges.values(), *([self._agreement] if self._agreement else [])]
        self._exchanges.clear()
        self._agreement = None
        for exchange in used:
            request = exchange[0]
            if request is not None and not any(exchange is kept for kept in self._kept):
                request.Free()

    # --- waiting

    def _await(self, request: MPI.Request, name: str, memory: object = None) -> None:
        """Wait until a request is done, which uses some memory."""
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
            self._kept.append(memory)
            raise

    def _advice(self) -> str:
        if self._checks is not False:
            return "one of them has ended, or is busy with something else"
        return (
            "workers call the same collective operators in the same order, with tensors of one "
            "shape: use(comm, check=True) or RELAXPY_CHECK_WORKERS=1 finds the first that differs"
        )

    def _agree(self, call: _Call, x: Array, how: Combination | None) -> None:
        """Compare numbers for what these workers want to run, and if they differ, what it is."""
        number = _number(call, how, x.dtype, x.shape)
        if self._agreement is None:
            buffers = np.empty(2, np.int64), np.empty(2, np.int64)
            made = self._comm.Allreduce_init(*buffers, MPI.MAX) if _PERSISTENT else None
            self._agreement = made, *buffers
        kept, sent, received = self._agreement
        sent[:] = number, -number
        request: MPI.Request
        if kept is None:
            request = self._comm.Iallreduce(sent, received, MPI.MAX)
        else:
            kept.Start()
            request = kept
        if not request.Test():
            self._await(request, _title(call, how), self._agreement)
        if received[0] != number or received[1] != -number:
            self._compare(f"{_title(call, how)} of {x.dtype} {x.shape}")

    def _compare(self, wanted: str) -> None:
        """Compare what the workers want to run."""
        own = np.frombuffer(wanted.encode()[:_DESCRIBED].ljust(_DESCRIBED), np.uint8)
        every: Array = np.empty((self.size, _DESCRIBED), np.uint8)
        request = self._comm.Iallgather([own, MPI.BYTE], [every, MPI.BYTE])
        self._await(request, f"the check of {wanted}", (own, every))
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
        self._forget()
        for comm in (self._comm, self._news):
            if comm is not None:
                comm.Free()
        self._news = None

    # --- failures

    def _heed_failures(self) -> None:
        news = self._news
        if news is None:
            self._heed_ends()
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

    def _heed_ends(self) -> None:
        """Look from time to time for workers that have ended before they could tell this one."""
        now = time.monotonic()
        if now - self._looked > _INTERVAL:
            self._looked = now
            world, numbers = MPI.COMM_WORLD.group, list(range(self.size))
            ended = ended_processes() & set(self._members.Translate_ranks(numbers, world))
            if ended:
                raise OtherWorkerError(ended_text(ended))

    def tell_end(self) -> None:
        """Tell the others that this worker ends, which may wait for it."""
        self._send([np.array([self._begun], np.int64), MPI.INT64_T], _ENDED)
        if not MPI.Is_finalized():
            self._forget()

    def refuse_child(self) -> None:
        """Let these workers refuse all calls in this process, which one of them has forked."""
        self._failure, self._news = "a process that a worker has forked is not a worker", None
        self._exchanges.clear()
        self._agreement = None

    @override
    def tell_failure(self, error: BaseException) -> None:
        if not isinstance(error, OtherWorkerError):
            text = f"{type(error).__name__}: {error}"
            self._failure = self._failure or text
            self._send([text.encode()[:_LONGEST], MPI.BYTE], _FAILURE)

    def _send(self, message: list[Any], tag: int) -> None:
        """Send the last words of this worker to all others."""
        news = self._news
        if news is None or MPI.Is_finalized():
            return
        others = (other for other in range(self.size) if other != self.rank)
        sent = [news.Isend(message, other, tag) for other in others]
        end = time.monotonic() + GRACE
        while not MPI.Request.Testall(sent) and time.monotonic() < end:
            time.sleep(1e-3)


_open: WeakSet[MpiWorkers] = WeakSet()


@atexit.register
def _tell_end() -> None:
    """Tell the other workers that this process ends, without waiting for them."""
    for workers in list(_open):
        workers.tell_end()


def _refuse_child() -> None:
    """A process that a worker has forked has nothing of MPI."""
    for workers in list(_open):
        workers.refuse_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_child)


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
