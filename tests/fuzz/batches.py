"""Cases that may crash the interpreter: batches run in processes, which name the case they try."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fuzz.seed import SEED

LIMIT = 5
"""The seconds after which a call is interrupted."""
PATIENCE = 60
"""The seconds in which a process does something."""
BATCH = 100
MEMORY = 1 << 33
"""The bytes of addresses that a process has."""


class LongError(BaseException):
    """A call takes long, and can be interrupted."""


def _interrupt(*_: object) -> None:
    raise LongError


@contextmanager
def limited() -> Iterator[None]:
    """A scope that ends after some seconds."""
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)


def _batch(check: Callable[[str], Counter[str]], begin: int, end: int, seed: str) -> None:
    """Try some cases, after naming each."""
    import resource  # which Windows does not have

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(begin, end):
        print("case", number, flush=True)
        try:
            print("found", json.dumps(check(f"{seed} {number}")), flush=True)
        except Exception:
            text = traceback.format_exc().replace("\n", "\n| ")
            print(f"fault {number}: {text}", flush=True)


def run(module: str, what: str, count: int, seed: str) -> int:
    """Try `count` cases of a module with a `command_line`; the number of faults."""
    total: Counter[str] = Counter()
    faults, begin = 0, 0
    while begin < count:
        end = min(count, begin + BATCH)
        command = [sys.executable, "-X", "faulthandler", "-m", module, "batch"]
        process = subprocess.Popen(
            [*command, str(begin), str(end), seed],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=PATIENCE + LIMIT * 3 * BATCH)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        last = begin
        for line in out.splitlines():
            word, _, rest = line.partition(" ")
            if word == "case":
                last = int(rest)
            elif word == "found":
                total += Counter(json.loads(rest))
            elif word == "fault" or line.startswith("|"):
                faults += word == "fault"
                print(line)
        if process.returncode:
            faults += 1
            print(f"case {last} ends the process: {process.returncode}\n{out[-3000:]}")
            end = last + 1
        begin = end
    print(f"{count} {what} of seed {seed!r}: {dict(total)}, {faults} faults")
    return faults


def command_line(check: Callable[[str], Counter[str]], main: Callable[[int, str], int]) -> None:
    """A batch in this process, or COUNT cases of SEED in others."""
    match sys.argv[1:]:
        case ["batch", begin, end, seed]:
            _batch(check, int(begin), int(end), seed)
        case [count, seed]:
            sys.exit(bool(main(int(count), seed)))
        case [count]:
            sys.exit(bool(main(int(count), SEED)))
        case _:
            sys.exit(bool(main(200, SEED)))
