"""Run many random kernels in several processes, and report what failed by kind."""

from __future__ import annotations

import gc
import itertools
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType

from relaxpy.support.progress import long_work
from tests.fuzz.kernels.compare import Failure, Hangs, Outcome, examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.kernels.shrink import shrink
from tests.fuzz.seed import LEVEL

CHUNK = 500
"""Programs that one process runs, if it does not crash."""
SPOKEN = 5000
"""Programs after which a line says how far the run is."""
SHORTENED = 20
"""Kinds of failures of which a program is shortened."""
SECONDS = 30
"""Of computing, after which a program is taken to hang."""
PATIENCE = 10 * SECONDS
"""Seconds without an answer, after which a process is taken to hang in code that is not Python."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise Hangs


def work(pipe: Connection, seeds: Sequence[str]) -> None:
    """Send through `pipe`, for each program, what became of its calls and what failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the run
    signal.signal(signal.SIGVTALRM, _alarm)
    gc.freeze()  # nodes of what is imported are many, and nothing frees them
    gc.set_threshold(50_000)
    for seed in seeds:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            outcome = examine(generate(seed))
        except Hangs:
            outcome = Outcome([Failure("hangs", "")])
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        pipe.send(outcome)
    pipe.close()


def outcomes(seeds: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    """The outcomes of some programs, run in a process that may crash: another one goes on then."""
    context = get_context("spawn")
    while seeds:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(theirs, seeds))
        process.start()
        theirs.close()
        while seeds:
            if not mine.poll(PATIENCE):
                process.kill()
                process.join()
                outcome = Outcome([Failure("hangs", "in code that is not Python")])
            else:
                try:
                    outcome = mine.recv()
                except EOFError:
                    process.join()
                    outcome = Outcome([Failure("the interpreter crashed", f"{process.exitcode}")])
            yield seeds[0], outcome
            seeds = seeds[1:]
            if not process.is_alive() and process.exitcode:
                break
        process.join()


def main(count: int, seed: str, jobs: int) -> int:
    """Run `count` programs, report the failures by kind with a small program for each.

    The first failure of a kind is printed at once, too. Ctrl-C ends the run early; what has been
    found until then is reported.
    """
    level = f" for {LEVEL}" if LEVEL else ""
    print(f"{count} programs of seed {seed} on {jobs} processes{level}", flush=True)
    begin = time.perf_counter()
    calls: Counter[str] = Counter()
    kinds: dict[str, list[tuple[str, Failure]]] = {}

    def share(start: int) -> list[tuple[str, Outcome]]:
        found = []
        for each in outcomes([f"{seed}/{n}" for n in range(start, min(start + CHUNK, count))]):
            found.append(each)
            line.done = next(ended)
            line.now(f"{_total(kinds)} failures")
        return found

    done, ended = 0, itertools.count(1)
    with ThreadPoolExecutor(jobs) as pool, long_work("kernels", count) as line:
        try:
            for found in pool.map(share, range(0, count, CHUNK)):
                for own, outcome in found:
                    calls += outcome.calls
                    for failure in outcome.failures:
                        kind = _alike(failure)
                        if kind not in kinds:
                            print(f"{own}: {failure}"[:300], flush=True)
                        kinds.setdefault(kind, []).append((own, failure))
                done += len(found)
                if done % SPOKEN == 0:
                    print(f"{done} programs, {_total(kinds)} failures", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    spent = time.perf_counter() - begin
    print(f"{done} programs, {done / spent:.0f} a second; calls: {dict(calls)}", flush=True)
    shortened = 0
    for kind, failed in sorted(kinds.items(), key=lambda item: -len(item[1])):
        own, failure = min(failed, key=lambda f: len(generate(f[0]).text))
        print(f"\n#### {len(failed)} times {kind}\n# e.g. seed {own}", flush=True)
        small = generate(own)
        if shortened < SHORTENED and "crash" not in failure.kind and failure.kind != "hangs":
            small = shrink(small, failure)
            shortened += 1
        print(small.standalone([f"{failure}"[:500]]), flush=True)
    print(f"\n{_total(kinds)} failures of {len(kinds)} kinds")
    return int(bool(kinds))


def _total(kinds: dict[str, list[tuple[str, Failure]]]) -> int:
    return sum(map(len, [*kinds.values()]))  # which another thread may add to


_COMMON = (
    *("is read-only", "do not fit", "should be", "larger than its memory", "is outside"),
    *("division by zero", "is not bound", "has no scalar form", "is not contiguous"),
)
"""What messages have in common that differ in names."""


def _alike(failure: Failure) -> str:
    """What failures of one cause have in common."""
    if failure.kind.startswith("wrong"):
        return failure.kind
    if failure.kind.startswith("no error"):
        return f"{failure.kind}: {failure.detail.split(':')[0]}"
    for words in _COMMON:
        if words in failure.detail:
            return f"{failure.kind}: {words}"
    plain = re.sub(r"\d+|\[[^]]*\]|'[^']*'|`[^`]*`|\([^)]*\)", "#", failure.detail)
    return f"{failure.kind}: {' '.join(plain.split()[:14])}"
