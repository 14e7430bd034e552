"""Runs of random programs: how far they are, and which of them failed."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from relaxpy.support.progress import long_work
from tests.fuzz.seed import SEED

Check: TypeAlias = Callable[[str, int], object]
"""Checks the program of a seed, which has this number; raises an error if something is wrong."""


def counted(count: int, what: str) -> Iterator[int]:
    """The numbers below `count`, with a line that says which one is under way."""
    with long_work(what, count) as work:
        for number in range(count):
            work.now("")
            yield number
            work.advance()


@contextmanager
def noted(*texts: object) -> Iterator[None]:
    """Add a program to the notes of an error, so that it is reported with it."""
    try:
        yield
    except Exception as error:
        error.add_note("\n".join(map(str, texts)))
        raise


def failures(what: str, count: int, seed: str, check: Check) -> Iterator[tuple[str, Exception]]:
    """The seeds of programs among so many that fail, each with what happened."""
    for number in counted(count, what):
        name = f"{seed}.{number}"
        try:
            check(name, number)
        except Exception as error:  # whatever it is, it is reported with its program
            yield name, error


def report(what: str, count: int, seed: str, check: Check) -> int:
    """Print the failures among so many programs as they are found, and their kinds; 1 if any."""
    kinds: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, error in failures(what, count, seed, check):
            place = traceback.extract_tb(error.__traceback__)[-1]
            kinds[f"{type(error).__name__} in {place.name}"] += 1
            print(f"--- {name}", *traceback.format_exception(error), sep="\n", flush=True)
    found = f" {dict(kinds)}" if kinds else ""
    print(f"{count} {what} from seed {seed}, {kinds.total()} failures{found}")
    return int(bool(kinds))


def command_line(main: Callable[[int, str], int]) -> None:
    """Run `main` for COUNT programs of SEED, by default 1000 of today's."""
    asked, begin, *_ = [*sys.argv[1:], "", ""]
    sys.exit(main(int(asked or 1000), begin or SEED))
