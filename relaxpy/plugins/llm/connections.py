"""Connections of the server, which end if their clients send or read too slowly."""

from __future__ import annotations

from functools import cache
from typing import Any

from typing_extensions import override

RECEIVE_SECONDS = 60.0
"""For a request with its body, from the end of the answer before it."""
SEND_SECONDS = 60.0
"""For what has been written to be read."""


@cache
def connection_class() -> Any:
    """The class of connections of HTTP/1.1, for uvicorn: each waits a bounded time only."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        receiving: Any = None
        sending: Any = None

        @override
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(0)  # so that `pause_writing` tells what is not read
            self.watch()

        @override
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        @override
        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.watch()

        @override
        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self.receiving, self.sending):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        @override
        def pause_writing(self) -> None:
            super().pause_writing()
            self.sending = self.loop.call_later(SEND_SECONDS, self.transport.abort)

        @override
        def resume_writing(self) -> None:
            super().resume_writing()
            if self.sending is not None:
                self.sending.cancel()

        def watch(self) -> None:
            """Let the time for a request begin, or end if the request is complete."""
            if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
                if self.receiving is None:
                    self.receiving = self.loop.call_later(RECEIVE_SECONDS, self.transport.abort)
            elif self.receiving is not None:
                self.receiving.cancel()
                self.receiving = None

    return Connection
