"""Random questions to integer reasoning: new ones each day, others with RELAXPY_FUZZ_SEED=…."""

from __future__ import annotations

import os
from datetime import date

import pytest

from tests.fuzz.arith import Session

SESSIONS = 60
SEED = int(os.environ.get("RELAXPY_FUZZ_SEED", date.today().strftime("%Y%m%d")))


@pytest.mark.rule("PX-1", "CMP-2")
@pytest.mark.parametrize("number", range(SESSIONS))
def test_answers_hold_by_definition(number: int) -> None:
    print(f"RELAXPY_FUZZ_SEED={SEED}")
    Session(SEED * 1000 + number).ask(8)
