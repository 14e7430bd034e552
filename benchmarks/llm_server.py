"""Measure servers of language models: relaxpy's, and that of llama-cpp-python where installed.

A GGUF file of random weights is served by each in turn, with two threads. Tokens per second are
those of 1, 4 and 16 clients that read streams of `--tokens` tokens at a time; "engine" has the same
requests in a process without HTTP. Then come the milliseconds of all threads of the server per
token, by the clock of its process, which a busy machine changes least, the time to the first token
of a prompt of 512 tokens, and that from the start of the process to the first answer. `--python`
names an interpreter that has llama-cpp-python with its extra `server`.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm import CONTEXT, GGUF_TYPES, SIZES, THREADS, VOCABULARY, weights_of, write_gguf

from relaxpy.llm import LanguageModel, config_of, load

CLIENTS, PROMPT = (1, 4, 16), 512
ENGINE = "engine"
ROUNDED = {"4 bits": "w4a8f32", "8 bits": "w8a8f32"}
"""Forms of weights, and those that round activations to 8 bits, as llama.cpp does."""


def body(client: int, tokens: int, length: int = 32) -> dict[str, Any]:
    """A request whose prompt, which no other has, is of so many tokens: each letter is one."""
    text = "".join(chr(97 + (client * 7 + k * k + k) % 26) for k in range(length))
    return {"prompt": text, "max_tokens": tokens, "temperature": 0}


async def stream(port: int, request: dict[str, Any]) -> tuple[float, int]:
    """The seconds until the first event, and the number of events with text."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({**request, "stream": True}).encode()
    head = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
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


def seconds_of(process: int) -> float:
    """The time that all threads of a process have had (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def rates(port: int, tokens: int, process: int, begin: float) -> list[float]:
    """A row: tokens per second, milliseconds per token, to the first of 512, and to start."""
    await stream(port, body(99, 4))
    started = time.perf_counter() - begin
    found, spent = [], []
    for clients in CLIENTS:
        before, begin = seconds_of(process), time.perf_counter()
        await asyncio.gather(*(stream(port, body(k + clients, tokens)) for k in range(clients)))
        found.append(clients * tokens / (time.perf_counter() - begin))
        spent.append(1e3 * (seconds_of(process) - before) / clients / tokens)
    times = [(await stream(port, body(50 + k, 2, PROMPT)))[0] for k in range(3)]
    return [*found, *spent, 1e3 * min(times), 1e3 * started]


def engine_rates(lm: LanguageModel, tokens: int) -> list[float]:
    """The same without HTTP."""
    lm.generate(body(99, 4)["prompt"], max_tokens=4)
    found, spent = [], []
    for clients in CLIENTS:
        prompts = [body(k + clients, tokens)["prompt"] for k in range(clients)]
        before, begin = time.process_time(), time.perf_counter()
        lm.generate(prompts, max_tokens=tokens)
        found.append(clients * tokens / (time.perf_counter() - begin))
        spent.append(1e3 * (time.process_time() - before) / clients / tokens)
    times = []
    for k in range(3):
        begin = time.perf_counter()
        next(iter(lm.stream(body(50 + k, 2, PROMPT)["prompt"], max_tokens=2)))
        times.append(time.perf_counter() - begin)
    return [*found, *spent, 1e3 * min(times), 0.0]


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
                        raise RuntimeError(f"{command[2]} has ended") from None
                    time.sleep(0.1)
            yield server.pid
        finally:
            server.terminate()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="125m")
    parser.add_argument("--width", choices=ROUNDED, default="4 bits")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    raw = {"model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
           "rms_norm_eps": 1e-5, "hidden_act": "silu", **SIZES[options.size]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        path, port = Path(folder) / "model.gguf", free.getsockname()[1]
        free.close()
        config = config_of(raw)
        write_gguf(path, config, weights_of(config), GGUF_TYPES[options.width], has_words=True)
        place = ("--port", str(port))
        ours = (sys.executable, "-m", "relaxpy", "serve", str(path), "--parallel", "16")
        rounded = ("--quantize", ROUNDED[options.width])
        servers: dict[str, list[str]] = {
            "relaxpy": [*ours, "--cache-dtype", "float16", *place],
            ROUNDED[options.width]: [*ours, "--cache-dtype", "float16", *place, *rounded],
            "llama.cpp": [
                *(options.python, "-m", "llama_cpp.server", "--model", str(path), *place),
                *("--n_ctx", str(CONTEXT), "--n_threads", THREADS, "--n_batch", str(PROMPT)),
                *("--n_threads_batch", THREADS, "--flash_attn", "true"),
                *("--interrupt_requests", "0"),
            ],
        }
        found: dict[str, list[list[float]]] = {name: [] for name in (ENGINE, *servers)}
        lm = load(path, sequences=16, cache_dtype="float16")
        for _ in range(options.rounds):
            found[ENGINE].append(engine_rates(lm, options.tokens))
            for name, command in servers.items():
                try:
                    begin = time.perf_counter()
                    with running(command, port) as process:
                        row = asyncio.run(rates(port, options.tokens, process, begin))
                        found[name].append(row)
                except (RuntimeError, OSError) as error:
                    print(name, error)
        heads = [*(f"{k}/s" for k in CLIENTS), *(f"{k} ms" for k in CLIENTS), "first ms", "start"]
        print(f"{'clients':12}", *map("{:>8}".format, heads))
        for name, rows in found.items():
            columns = list(zip(*rows, strict=True))
            best = [max(c) for c in columns[: len(CLIENTS)]] + [
                min(c) for c in columns[len(CLIENTS) :]
            ]
            print(f"{name:12}", *(f"{value:8.2f}" for value in best) if rows else ["not here"])
    return 0


if __name__ == "__main__":
    os.environ.setdefault("RELAXPY_NUM_THREADS", THREADS)
    sys.exit(main())
