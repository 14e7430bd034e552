"""The thread of a server in which the engine runs, and its requests as asynchronous streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from relaxpy.plugins.llm.continuation import Continuation, Reason
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class Piece:
    """A piece of a choice of an answer; the last one has the reason why it ended, or an error."""

    index: int
    """The number of the choice."""
    text: str
    tokens: range
    """The numbers of the tokens that the piece accounts for."""
    is_last: bool
    reason: Reason | None = None
    error: Exception | None = None


class Job:
    """An answer under way. Only the worker's thread reads and ends its requests."""

    def __init__(self, choices: Sequence[Continuation], wake: Callable[[], None]) -> None:
        self.choices = choices
        self.is_cancelled = False
        self.unfinished = dict(enumerate(choices))
        self._wake = wake
        self._new: list[Piece] = []
        self._left = len(choices)
        self._news = asyncio.Event()

    async def received(self) -> list[Piece]:
        """The pieces that have come since the last call, at least one; none after the end."""
        if self._left:
            await self._news.wait()
            self._news.clear()
        new, self._new = self._new, []
        self._left -= sum(piece.is_last for piece in new)
        return new

    def cancel(self) -> None:
        """Let the worker end the requests, whose pages are free then."""
        self.is_cancelled = True
        self._wake()

    def new(self) -> list[Piece]:
        """The pieces that are new, in the worker's thread."""
        found = [self._piece(*item) for item in list(self.unfinished.items())]
        return [piece for piece in found if piece is not None]

    def take(self, new: list[Piece]) -> None:
        """Receive pieces, in the thread of the loop."""
        self._new += new
        self._news.set()

    def _piece(self, index: int, choice: Continuation) -> Piece | None:
        before, request = choice.read, choice.request
        if self.is_cancelled:
            request.cancel()
        if before == len(request.tokens) and not request.done:
            return None
        try:
            text = choice.take()
        except Exception as failure:  # the tokenizer does not know what to write
            request.error, text = failure, ""
            request.cancel()
        if request.done:
            del self.unfinished[index]
        tokens = range(before, choice.read)
        return Piece(index, text, tokens, request.done, choice.reason, request.error)


class Worker:
    """Runs the engine of a model in a thread as long as there are jobs."""

    def __init__(self, model: Any) -> None:
        """`model` is a language model, or a cross-encoder, which has calls alone."""
        self.model = model
        self._new: list[Job] = []
        self._jobs: list[Job] = []
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._news, self._is_stopped = Event(), False
        self._thread = Thread(target=self._run, name="relaxpy engine", daemon=True)

    def start(self) -> None:
        """Start the thread, whose answers are for the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End all jobs, and the thread."""
        self._is_stopped = True
        self._news.set()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True as long as the thread runs."""
        return self._thread.is_alive()

    @property
    def unfinished(self) -> int:
        """The number of choices of answers that have not ended."""
        return sum(len(job.unfinished) for job in [*self._new, *self._jobs])

    def submit(self, choices: Sequence[Continuation]) -> Job:
        """A job for the choices of an answer, which have just started."""
        job = Job(choices, self._news.set)
        self._new.append(job)
        self._news.set()
        return job

    async def call(self, function: Callable[[], Any]) -> Any:
        """The result of a function that uses the engine, called between two steps."""
        result: Future[Any] = Future()
        self._calls.append((function, result))
        self._news.set()
        return await asyncio.wrap_future(result)

    def _run(self) -> None:
        while True:
            if not (self._jobs or self._new or self._calls):
                self._news.wait()
            self._news.clear()
            if self._calls:
                settle(*self._calls.pop(0))
            while self._new:
                self._jobs.append(self._new.pop(0))
            ends = self._is_stopped
            if ends:
                for job in self._jobs:
                    job.is_cancelled = True
            with self.model.turn:
                self._deliver([job for job in self._jobs if job.is_cancelled])
                if self._jobs:
                    self.model.step()
                    self._deliver(self._jobs)
            if ends:
                return

    def _deliver(self, jobs: Sequence[Job]) -> None:
        """Send on what is new, all at once, as waking the loop takes most of the time."""
        pieces = [(job, new) for job in jobs if (new := job.new())]
        if pieces:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(_hand_out, pieces)
        self._jobs = [job for job in self._jobs if job.unfinished]


def _hand_out(pieces: Sequence[tuple[Job, list[Piece]]]) -> None:
    for job, new in pieces:
        job.take(new)


def settle(function: Callable[[], Any], result: Future[Any]) -> None:
    """Let the result of a function, or its error, be that of a future, if anybody waits for it."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        found = function()
    except Exception as error:
        result.set_exception(error)
    else:
        result.set_result(found)
