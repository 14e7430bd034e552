"""Layers of tests: `tests/slow.txt` lists the tests that the quick layer leaves to the slow one.

`tools/slow_tests.py` writes that list from measured times, so that nobody marks tests by hand.
"""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SLOW = Path(__file__).with_name("slow.txt")
COLLECTED = pytest.StashKey[frozenset[str]]()
"""The tests that were collected, before any was deselected."""


def add_options(parser: pytest.Parser) -> None:
    """The options that select a layer, and measure tests."""
    parser.addoption(
        "--layer",
        choices=("all", "quick", "slow"),
        default="all",
        help="run the tests that tests/slow.txt does not list, those that it lists, or all",
    )
    parser.addoption(
        "--record-times",
        metavar="FILE",
        help="append the processor time of each test to FILE, for tools/slow_tests.py",
    )


def listed() -> list[str]:
    """The entries of the list: tests, each as pytest names it, or functions with all their rows."""
    lines = SLOW.read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line and not line.startswith("#")]


def is_slow(name: str, entries: frozenset[str]) -> bool:
    """Whether the list has a test, or its function."""
    return name in entries or name.partition("[")[0] in entries


def keep_layer(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other layers."""
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)
    layer = config.getoption("--layer")
    if layer == "all":
        return
    entries = frozenset(listed())
    left = [item for item in items if is_slow(item.nodeid, entries) is (layer == "quick")]
    gone = set(left)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left)


class Times:
    """Appends the processor time of each test, with that of its child processes, to a file.

    Units: seconds
    """

    def __init__(self, path: str) -> None:
        # Workers of pytest-xdist write whole lines.
        self.file = Path(path).open("a", buffering=1)  # noqa: SIM115

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = _seconds()
        result = yield
        self.file.write(f"{_seconds() - start:.3f} {item.nodeid}\n")
        return result


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
