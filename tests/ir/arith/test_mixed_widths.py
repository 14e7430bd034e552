"""Unsigned arithmetic, which wraps around, beside signed arithmetic, which does not overflow."""

import pytest

from tests.fuzz.arith import Session, bounded, modular, simplified


@pytest.mark.each_choice
@pytest.mark.parametrize("dtypes", [("uint8", "int32"), ("int8", "uint16"), ("uint64", "int64")])
@pytest.mark.parametrize("seed", range(20))
def test_values_bounds_and_residues_hold_in_their_datatypes(seed, dtypes) -> None:
    session = Session(f"{seed} of {' and '.join(dtypes)}", dtypes)
    points = list(session.points())
    for question in (simplified, bounded, modular):
        for _ in range(3):
            question(session, points)
