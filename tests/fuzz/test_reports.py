"""Runs of random programs report what failed."""

import pytest

from tests.fuzz.progress import noted, report


def check(name: str, number: int) -> None:
    with noted(f"the program {name}"):
        assert number != 1, "a wrong result"


def test_failures_are_reported_with_their_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("programs", 3, "a", check) == 1
    out = capsys.readouterr().out
    found, _, summary = out.rstrip().rpartition("\n")
    assert found.startswith("--- a.1\n")
    assert all(text in found for text in ("a wrong result", "the program a.1"))
    assert "a.0" not in found
    assert summary == "3 programs from seed a, 1 failures {'AssertionError in check': 1}"


def test_a_run_without_failures_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("programs", 1, "a", check) == 0
    assert capsys.readouterr().out == "1 programs from seed a, 0 failures\n"
