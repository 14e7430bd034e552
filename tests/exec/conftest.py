"""Golden text: `pytest --update-golden` writes what is otherwise compared."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text with tests/golden/<folder of the test>/<test>.txt."""
    path = GOLDEN / request.path.parent.name / f"{request.node.name.removeprefix('test_')}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden text {path.name}; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return compare
