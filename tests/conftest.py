import gc
import os

import pytest
from hypothesis import settings

from tests import layers, rows

# Examples that are slow on a busy machine are not failures, and a run repeats exactly.
settings.register_profile("relaxpy", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("relaxpy")


def pytest_configure(config: pytest.Config) -> None:
    rows.configure(config)
    # What passes today passes tomorrow: runs draw the same programs and rows.
    os.environ.setdefault("RELAXPY_FUZZ_SEED", "1")
    # Code is kept from run to run, but in the checkout; programs are compiled in every run.
    os.environ.setdefault("RELAXPY_CACHE", "code")
    os.environ.setdefault("RELAXPY_CACHE_DIR", str(config.rootpath / ".machine_code"))
    if config.getoption("--record-times"):
        config.pluginmanager.register(layers.Times(config.getoption("--record-times")))
    # A tenth of the run would be spent in visiting the thousands of tests again and again.
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows.keep_each_choice(config, items)
    layers.keep_layer(config, items)


def pytest_collection_finish() -> None:
    gc.freeze()
    # A third of the time of tables of operators went into searching their short-lived graphs.
    gc.set_threshold(100_000, 50, 50)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    layers.add_options(parser)
    parser.addoption(
        "--whole-table",
        action="store_true",
        help="run all rows of tables, and all combinations of parameters",
    )
