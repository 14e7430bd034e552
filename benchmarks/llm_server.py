"""Measure servers of language models: relaxpy's, and those of llama.cpp where installed.

A GGUF file of random weights is served by each. Tokens per second are those of some clients
that read streams of `--tokens` tokens at a time; "engine" has the same requests in a process
without HTTP. Then come the milliseconds of all threads of the server per token, which have nothing
of the clients and are least changed by a busy machine, the time to the first token of a prompt of
512 tokens, and that from the start of the process to the first answer. The last line has the
processor time of the engine in that of the server, which has the same weights. All servers take
turns, and the best of all rounds counts. `RELAXPY_NUM_THREADS` are the threads of each: with one,
no time is that of a thread that waits. `--llama-server` is the path of llama.cpp's own server, with
a slot for each client; `--python` names an interpreter that has llama-cpp-python with its extra
`server`, which answers one request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from llm import CONTEXT, GGUF_TYPES, SIZES, VOCABULARY, weights_of, write_gguf

from relaxpy.llm import LanguageModel, config_of, load

THREADS = os.environ.setdefault("RELAXPY_NUM_THREADS", "2")
PROMPT, TRIES = 512, 600
ENGINE, OURS = "engine", "relaxpy"
ROUNDED = {"4 bits": "w4a8f32", "8 bits": "w8a8f32"}
"""Forms of weights, and those that round activations to 8 bits, as llama.cpp does."""


def body(client: int, tokens: int, length: int = 32) -> dict[str, Any]:
    """A request whose prompt, which no other has, is of so many tokens: each letter is one."""
    text = "".join(chr(97 + (client * 7 + k * k + k) % 26) for k in range(length))
    return {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


async def stream(port: int, request: dict[str, Any]) -> tuple[float, int]:
    """The seconds until the first event, and the number of events with text."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({**request, "stream": True}).encode()
    head = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    head += "Connection: close\r\n\r\n"
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}".encode() + data)
    first, count = 0.0, 0
    while b"[DONE]" not in (line := await reader.readline()):
        if not line:
            raise ConnectionError("the server has closed the connection")
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - begin
            count += 1
    writer.close()
    return first, count


def seconds_of(process: int | str = "self") -> float:
    """The time that all threads of a process have had (Linux)."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Served:
    """A server that listens."""

    def __init__(self, port: int, process: int) -> None:
        self.port, self.process = port, process

    def run(self, requests: list[dict[str, Any]]) -> list[tuple[float, int]]:
        """What `stream` has found for requests that come together."""

        async def all_together() -> list[tuple[float, int]]:
            return await asyncio.gather(*(stream(self.port, request) for request in requests))

        return asyncio.run(all_together())

    def first(self, request: dict[str, Any]) -> float:
        """The seconds until the first token."""
        return self.run([request])[0][0]

    def begin(self) -> None:
        """Answer a request, once the model is loaded: some servers listen before."""
        for _ in range(TRIES):
            try:
                self.run([body(99, 4)])
            except ConnectionError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("it gives no answers")


class Alone:
    """The engine, in this process."""

    process = "self"

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    def run(self, requests: list[dict[str, Any]]) -> None:
        """Answer requests that come together."""
        prompts = [request["prompt"] for request in requests]
        self.lm.generate(prompts, max_tokens=requests[0]["max_tokens"])

    def first(self, request: dict[str, Any]) -> float:
        """The seconds until the first token."""
        begin = time.perf_counter()
        next(iter(self.lm.stream(request["prompt"], max_tokens=request["max_tokens"])))
        return time.perf_counter() - begin


Contestant: TypeAlias = Served | Alone


def measured(contestant: Contestant, clients: int, tokens: int) -> tuple[float, float]:
    """Tokens per second, and milliseconds of processor time for each."""
    requests = [body(k + clients, tokens) for k in range(clients)]
    before, begin = seconds_of(contestant.process), time.perf_counter()
    contestant.run(requests)
    passed, spent = time.perf_counter() - begin, seconds_of(contestant.process) - before
    return clients * tokens / passed, 1e3 * spent / clients / tokens


@contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    """A server in a process of its own, which listens once this begins."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        raise RuntimeError("it has ended") from None
                    time.sleep(0.1)
            yield server.pid
        finally:
            server.terminate()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def report(
    contestants: dict[str, Contestant], starts: dict[str, float], options: argparse.Namespace
) -> None:
    """Measure and print."""
    rounds, tokens, several = options.rounds, options.tokens, options.clients
    rates: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    firsts: dict[str, list[float]] = defaultdict(list)
    for turn in range(rounds):
        for clients in several:
            for name, contestant in contestants.items():
                rates[name, clients].append(measured(contestant, clients, tokens))
        for name, contestant in contestants.items():
            firsts[name].append(contestant.first(body(50 + turn, 2, PROMPT)))
    heads = [*(f"{k}/s" for k in several), *(f"{k} ms" for k in several), "first ms", "start"]
    print(f"{'clients':12}", *map("{:>8}".format, heads))
    for name in contestants:
        columns = [list(zip(*rates[name, clients], strict=True)) for clients in several]
        row = [*(max(fast) for fast, _ in columns), *(min(spent) for _, spent in columns)]
        row += [1e3 * min(firsts[name]), 1e3 * starts[name]]
        print(f"{name:12}", *(f"{value:8.2f}" for value in row))
    spent = {key: min(ms for _, ms in found) for key, found in rates.items()}
    if OURS in contestants:
        shares = [spent[ENGINE, clients] / spent[OURS, clients] for clients in several]
        print(f"{'engine/ours':39}", *(f"{share:8.3f}" for share in shares))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="125m")
    parser.add_argument("--width", choices=ROUNDED, default="4 bits")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--llama-server", type=Path)
    options = parser.parse_args()
    raw = {"model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
           "rms_norm_eps": 1e-5, "hidden_act": "silu", **SIZES[options.size]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        config, most = config_of(raw), max(options.clients)
        write_gguf(path, config, weights_of(config), GGUF_TYPES[options.width], has_words=True)
        ours = (sys.executable, "-m", "relaxpy", "serve", str(path), "--parallel", str(most))
        rounded = ("--quantize", ROUNDED[options.width])
        servers: dict[str, list[str]] = {
            OURS: [*ours, "--cache-dtype", "float16"],
            ROUNDED[options.width]: [*ours, "--cache-dtype", "float16", *rounded],
            "llama_cpp": [
                *(options.python, "-m", "llama_cpp.server", "--model", str(path)),
                *("--n_ctx", str(CONTEXT), "--n_threads", THREADS, "--n_batch", str(PROMPT)),
                *("--n_threads_batch", THREADS, "--flash_attn", "true"),
                *("--interrupt_requests", "0"),
            ],
        }
        if options.llama_server:
            servers["llama-server"] = [
                *(str(options.llama_server), "--model", str(path), "--device", "none"),
                *("--ctx-size", str(2 * PROMPT * most), "--parallel", str(most), "--offline"),
                *("--threads", THREADS, "--flash-attn", "on", "--cache-ram", "0"),
            ]
        contestants: dict[str, Contestant] = {
            ENGINE: Alone(load(path, sequences=most, cache_dtype="float16"))
        }
        starts = {ENGINE: 0.0}
        with ExitStack() as running_servers:
            for name, command in servers.items():
                begin, port = time.perf_counter(), free_port()
                try:
                    process = running_servers.enter_context(
                        running([*command, "--port", str(port)], port)
                    )
                    served = Served(port, process)
                    served.begin()
                    contestants[name] = served
                    starts[name] = time.perf_counter() - begin
                except (RuntimeError, OSError) as error:
                    print(name, error)
            report(contestants, starts, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
