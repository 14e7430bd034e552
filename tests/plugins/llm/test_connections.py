"""Clients that send or read too slowly, by sockets, and what they must not delay."""

import json
import socket
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from relaxpy.plugins.llm import connections
from tests.plugins.llm.conftest import Running
from tests.plugins.llm.test_server import wait_until_idle

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def hasty(lm: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that does not wait long."""
    for name in ("RECEIVE_SECONDS", "SEND_SECONDS"):
        monkeypatch.setattr(connections, name, 0.5)
    server = Running(lm, max_tokens=250)
    yield server
    server.stop()


def request(**fields: Any) -> bytes:
    body = json.dumps(fields).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def is_closed(client: socket.socket) -> bool:
    """True once the server has closed a connection, whatever it has sent before."""
    client.settimeout(20)
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HT",
        HEAD,
        HEAD + b"Content-Length: 90\r\n\r\n",
        HEAD + b'Content-Length: 90\r\n\r\n{"prompt": ',
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n",
        HEAD + b"Content-Length: 99999999\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_end(hasty: Running, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port)) as client:
        client.sendall(sent)
        assert is_closed(client)


def test_a_request_that_comes_byte_by_byte(hasty: Running) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port)) as client:
        end, is_open = time.monotonic() + 20, True
        while is_open and time.monotonic() < end:
            try:
                client.sendall(HEAD[:1])
                time.sleep(0.02)
            except (BrokenPipeError, ConnectionResetError):
                is_open = False
    assert not is_open


def test_a_connection_serves_requests_longer_than_each_may_take(hasty: Running) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port)) as client:
        client.settimeout(20)
        for _ in range(4):
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            found = b""
            while b'"ok"}' not in found:
                found += client.recv(1000)
            time.sleep(0.3)


def test_a_stream_that_is_not_read_ends(hasty: Running, lm: Any) -> None:
    """Its answer is larger than the buffers of both sides, so the server could only wait."""
    [listening] = hasty.server.servers[0].sockets
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    fields = {"prompt": "the cat", "max_tokens": 250, "stream": True, "logprobs": 20, "n": 16}
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", hasty.port))
        client.sendall(request(**fields, logit_bias={"1": -100}))
        begin = client.recv(8, socket.MSG_WAITALL)
        wait_until_idle(lm)
        end = time.monotonic() + 20
        while any(c.cycle and not c.cycle.response_complete for c in open_connections(hasty)):
            assert time.monotonic() < end
            time.sleep(0.05)
        whole = b"".join(iter(lambda: received(client), b""))
    assert (begin, b"data: {" in whole) == (b"HTTP/1.1", True)
    assert b"[DONE]" not in whole


def open_connections(server: Running) -> list[Any]:
    return list(server.server.server_state.connections)


def received(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_a_large_body_is_refused_before_it_comes(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.settimeout(20)
        client.sendall(HEAD + b"Content-Length: 99999999\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 413")


def test_other_threads_run_while_a_long_text_becomes_tokens(lm: Any) -> None:
    text = "the cat sat on the mat " * 40_000
    thread = Thread(target=lm.tokenizer.encode, args=(text,))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


def test_requests_after_one_another_and_at_once_of_one_connection(running: Running) -> None:
    """The second request is sent before the answer to the first one is read."""
    ask = request(prompt="the cat", max_tokens=3, temperature=0)
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.settimeout(20)
        client.sendall(ask + ask)
        found = b""
        while found.count(b"total_tokens") < 2:
            found += client.recv(1000)
    assert found.count(b"HTTP/1.1 200") == 2


def test_two_lengths_of_one_body_are_refused_and_nothing_after_them_is_read(lm: Any) -> None:
    """RFC 9112, section 6.1: a proxy may have gone by the other length."""
    server = Running(lm)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            second = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            client.sendall(HEAD + both + second)
            data = b""
            while part := client.recv(1 << 16):
                data += part
            assert data.startswith(b"HTTP/1.1 400 ")
            assert data.count(b"HTTP/1.1") == 1
    finally:
        server.stop()


@pytest.mark.parametrize(("count", "found"), [(100, [200]), (10_000, [431, 400])])
def test_headers_are_few(lm: Any, count: int, found: list[int]) -> None:
    """The second status is that of h11, if they come in several pieces."""
    server = Running(lm)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            headers = b"".join(b"X-%d: abc\r\n" % number for number in range(count))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
            assert int(client.recv(100).split()[1]) in found
    finally:
        server.stop()
