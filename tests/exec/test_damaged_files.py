"""A few damaged files; `make fuzz` tries very many."""

import sys

import pytest

from tests.fuzz import damaged_files
from tests.fuzz.seed import COUNT, SEED


@pytest.mark.skipif(sys.platform == "win32", reason="calls are interrupted by an alarm")
def test_damaged_files_are_refused_or_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    faults = damaged_files.main(2 * COUNT, SEED)
    assert faults == 0, capsys.readouterr().out
