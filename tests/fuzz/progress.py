"""How far a run of random programs is, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.support.progress import long_work


def counted(count: int, what: str) -> Iterator[int]:
    """The numbers below `count`, with a line that says which one is under way."""
    with long_work(what, count) as work:
        for number in range(count):
            work.now("")
            yield number
            work.advance()
