import pytest
from hypothesis import settings

# Examples that are slow on a busy machine are not failures, and a run repeats exactly.
settings.register_profile("relaxpy", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("relaxpy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the texts in tests/golden"
    )
    parser.addoption(
        "--whole-table", action="store_true", help="compare all rows of operators in all datatypes"
    )
