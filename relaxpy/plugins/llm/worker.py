"""The thread of a server in which the engine runs, and its requests as asynchronous streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from threading import Event, Thread

from relaxpy.plugins.llm.continuation import Continuation, Reason
from relaxpy.plugins.llm.language_model import LanguageModel
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class Piece:
    """A piece of an answer; the last one has the reason why it ended, or an error."""

    text: str
    tokens: range
    """The numbers of the tokens that the piece accounts for."""
    is_last: bool
    reason: Reason | None = None
    error: Exception | None = None


class Job:
    """An answer under way. Only the worker's thread reads and ends its request."""

    def __init__(self, continuation: Continuation, wake: Callable[[], None]) -> None:
        self.continuation = continuation
        self.is_cancelled = False
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces of the answer as they come."""
        while True:
            piece = await self._pieces.get()
            yield piece
            if piece.is_last:
                return

    def cancel(self) -> None:
        """Let the worker end the request, whose pages are free then."""
        self.is_cancelled = True
        self._wake()

    def deliver(self) -> bool:
        """Send on what is new, in the worker's thread; True at the end of the answer."""
        before, request = self.continuation.read, self.continuation.request
        if self.is_cancelled:
            request.cancel()
        try:
            text = self.continuation.take()
        except Exception as failure:  # the tokenizer does not know what to write
            request.error, text = failure, ""
            request.cancel()
        tokens = range(before, self.continuation.read)
        if text or tokens or request.done:
            reason, error = self.continuation.reason, request.error
            piece = Piece(text, tokens, request.done, reason, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        return request.done


class Worker:
    """Runs the engine of a model in a thread as long as there are jobs."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._new: list[Job] = []
        self._jobs: list[Job] = []
        self._news, self._is_stopped = Event(), False
        self._thread = Thread(target=self._run, name="relaxpy engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
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
        """The number of answers that have not ended."""
        return len(self._new) + len(self._jobs)

    def submit(self, continuation: Continuation) -> Job:
        """A job for a continuation that has just started."""
        job = Job(continuation, self._news.set)
        self._new.append(job)
        self._news.set()
        return job

    def _run(self) -> None:
        while True:
            if not self._jobs and not self._new:
                self._news.wait()
            self._news.clear()
            while self._new:
                self._jobs.append(self._new.pop(0))
            if self._is_stopped:
                for job in self._jobs:
                    job.is_cancelled = True
            with self.model.turn:
                self._deliver()
                if self._jobs:
                    self._step()
                    self._deliver()
            if self._is_stopped:
                return

    def _deliver(self) -> None:
        self._jobs = [job for job in self._jobs if not job.deliver()]

    def _step(self) -> None:
        engine = self.model.engine
        try:
            engine.step()
        except Exception as error:  # the requests of the call end with it, the server goes on
            for request in list(engine.running) or list(engine.waiting)[:1]:
                request.error = error
                request.cancel()
