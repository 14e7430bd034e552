"""Fixtures of several files of tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from relaxpy.exec.api import lowered as module_of_lowering
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.exec.program.lower import text


@pytest.fixture
def no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the Python text of a module is needed."""

    def rendered(statements: Sequence[object]) -> tuple[str, Callable[[int], None]]:
        assert not statements, "the text is needed"
        return "", lambda line: None

    monkeypatch.setattr(text, "rendered", rendered)


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were lowered during a test, whose cache is new and switched on."""
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path / "cache"))
    ran: list[str] = []
    lower = module_of_lowering.lower_module

    def record(module: Any, new_backend: Any, *others: Any, **named: Any) -> object:
        if new_backend is GraphBackend:  # constants are evaluated on NumPy
            ran.append(module.script())
        return lower(module, new_backend, *others, **named)

    monkeypatch.setattr(module_of_lowering, "lower_module", record)
    return ran
