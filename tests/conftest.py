import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

# What passes today passes tomorrow: runs draw the same programs and rows. Modules read it once.
os.environ.setdefault("RELAXPY_FUZZ_SEED", "1")

from tests import isolation, layers, rows

# Examples that are slow on a busy machine are not failures, and a run repeats exactly.
settings.register_profile("relaxpy", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("relaxpy")


def pytest_configure(config: pytest.Config) -> None:
    rows.configure(config)
    # Code is kept from run to run, but in the checkout; programs are compiled in every run.
    os.environ.setdefault("RELAXPY_CACHE", "code")
    os.environ.setdefault("RELAXPY_CACHE_DIR", str(config.rootpath / ".machine_code"))
    if config.getoption("--record-times"):
        config.pluginmanager.register(layers.Times(config.getoption("--record-times")))
    # A tenth of the run would be spent in visiting the thousands of tests again and again.
    gc.disable()
    sys.meta_path.insert(0, isolation.SeededTorch())


def pytest_ignore_collect(config: pytest.Config, collection_path: Path) -> bool | None:
    return layers.ignores(config, collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[layers.COLLECTED] = frozenset(item.nodeid for item in items)
    rows.keep_each_choice(config, items)
    layers.keep_layer(config, items)
    layers.shuffle(config, items)


def pytest_collection_finish() -> None:
    gc.freeze()
    # A third of the time of tables of operators went into searching their short-lived graphs.
    gc.set_threshold(100_000, 50, 50)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report to another process what a test does, and of what is around it only that it failed.

    Two thirds of what was sent told that nothing happened.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    place = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**place)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**place)
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    layers.add_options(parser)
    parser.addoption(
        "--whole-table",
        action="store_true",
        help="run all rows of tables, and all combinations of parameters",
    )


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Each test finds the process as the one before it did."""
    with isolation.restored():
        yield
