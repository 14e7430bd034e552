"""Golden text: `pytest --update-golden` writes what is otherwise compared."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "kernel"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compares a text with tests/golden/kernel/<test>.txt."""
    path = GOLDEN / f"{request.node.name.removeprefix('test_')}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden text {path.name}; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return compare
