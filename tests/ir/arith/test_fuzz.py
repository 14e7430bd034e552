"""Random questions to integer reasoning: new ones each day, others with RELAXPY_FUZZ_SEED=…."""

import pytest

from tests.fuzz.arith import QUESTIONS_EACH, Session
from tests.fuzz.seed import COUNT, SEED

SESSIONS = COUNT // 2


@pytest.mark.rule("PX-1", "CMP-2")
@pytest.mark.parametrize("number", range(SESSIONS))
def test_answers_hold_by_definition(number: int) -> None:
    print(f"RELAXPY_FUZZ_SEED={SEED}")
    Session(f"{SEED}:{number}").ask(QUESTIONS_EACH)
