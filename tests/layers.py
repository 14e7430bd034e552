"""Layers of tests: `tests/times.txt` lists the tests that the quick layer leaves to others.

`tools/slow_tests.py` writes that table from measured times, so that nobody marks tests by hand.
"""

import functools
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TABLE = Path(__file__).with_name("times.txt")
RARE = "rare "
"""The table has this before the names of tests that only `make test-all` runs."""
_KEPT_OUT = re.compile(
    r"_of_ray\b|::test_a_notebook_shows_what_is_saved_in_it\b|^tests/test_stranger\.py"
)
"""Tests that need Ray, notebooks, and packages that are installed anew, as by `make dist`.

Unless they are quick, no layer has them.
"""
_SKIPPED = re.compile(r"^tests/browser/|native/test_arm\.py::test_(programs|a_file)_")
"""Tests of a browser, and all but a sample of those that are emulated. No layer has them.

Where these were not installed they are skipped, and look quick.
"""
COLLECTED = pytest.StashKey[frozenset[str]]()
"""The tests that were collected, before any was deselected."""


def add_options(parser: pytest.Parser) -> None:
    """The options that select a layer, and measure tests."""
    parser.addoption(
        "--layer",
        choices=("all", "quick", "slow"),
        default="all",
        help="run the tests that tests/times.txt does not list, those listed as slow, or all",
    )
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in a random order")
    parser.addoption(
        "--record-times",
        metavar="FILE",
        help="append the processor time of each test to FILE, for tools/slow_tests.py",
    )


class Table(NamedTuple):
    """The seconds of the quick tests of each file, and of each entry: of a test, or of a function.

    A function is listed where all its rows are slow, or rare. Names are those of pytest.
    """

    files: dict[str, float]
    entries: dict[str, float]
    rare: set[str]


def table() -> Table:
    """The table in `tests/times.txt`."""
    found, file = Table({}, {}, set()), ""
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        seconds, _, name = line.strip().partition(" ")
        if line.startswith(" "):
            entry = f"{file}::{name.removeprefix(RARE)}"
            found.entries[entry] = float(seconds)
            if name.startswith(RARE):
                found.rare.add(entry)
        else:
            file = name
            found.files[file] = float(seconds)
    return found


def listed() -> list[str]:
    """The entries of the table."""
    return [*table().entries]


def is_slow(name: str, entries: Container[str]) -> bool:
    """Whether the entries of a table have a test, or its function."""
    return name in entries or name.partition("[")[0] in entries


def is_kept_out(name: str) -> bool:
    """Whether a test is in no layer, unless it is quick."""
    return any(kind.search(name) for kind in (_SKIPPED, _KEPT_OUT))


def ignores(config: pytest.Config, path: Path) -> bool:
    """Whether a file of tests is not imported, as the slow layer has none of its tests."""
    if config.getoption("--layer") != "slow" or not path.match("test_*.py"):
        return False
    return path.relative_to(TABLE.parents[1]).as_posix() not in _slow_files()


@functools.cache
def _slow_files() -> frozenset[str]:
    _, entries, rare = table()
    return frozenset(name.partition("::")[0] for name in entries if name not in rare)


def keep_layer(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other layers."""
    layer = config.getoption("--layer")
    if layer == "all":
        return
    _, entries, rare = table()
    kept, left = [], []
    for item in items:
        name = item.nodeid
        slow = is_slow(name, entries)
        out = is_slow(name, rare) or _SKIPPED.search(name) or (slow and is_kept_out(name))
        (kept if slow is (layer == "slow") and not out else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def shuffle(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files in a random order, and the tests of each file too."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    draw = random.Random(seed)
    groups = [draw.sample(group, len(group)) for group in files.values()]
    items[:] = [item for group in draw.sample(groups, len(groups)) for item in group]


class Times:
    """Appends the processor time of each test, with that of its child processes, to a file.

    Tests that share a fixture of a module or the session have equal shares of its time: whichever
    comes first sets it up, and the last one of a file ends processes, whose time counts then. A
    test that is skipped has no time: where it runs, it may take long.

    Units: seconds
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.skipped = False
        self.own: dict[pytest.Function, float] = {}
        """The time of each test, without that of shared fixtures."""
        self.shared: Counter[object] = Counter()
        """The time of each fixture that tests share, and of the end of each file."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.skipped = self.skipped or report.skipped

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        start, others = _seconds(), self.shared.total()
        result = yield
        others -= self.shared.total()  # fixtures that it uses
        self.shared[fixturedef] += _seconds() - start + others
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        start = _seconds()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self.shared[item.path] += _seconds() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        start, shared, self.skipped = _seconds(), self.shared.total(), False
        result = yield
        if not self.skipped:
            self.own[item] = _seconds() - start - (self.shared.total() - shared)
        return result

    def pytest_sessionfinish(self) -> None:
        uses = {item: _fixtures(item) & self.shared.keys() for item in self.own}
        uses = {item: used and {*used, item.path} for item, used in uses.items()}
        users = Counter(fixture for used in uses.values() for fixture in used)
        with self.path.open("a") as file:
            for item, own in self.own.items():
                seconds = own + sum(self.shared[each] / users[each] for each in uses[item])
                file.write(f"{seconds:.3f} {item.nodeid}\n")


def _fixtures(item: pytest.Function) -> set[object]:
    definitions = item._fixtureinfo.name2fixturedefs
    return {each for several in definitions.values() for each in several}


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
