"""What is known of the results of operators, and how they refuse what does not fit."""

import pytest

from tests.ir.relax.op.inferred import INFERRED
from tests.ir.relax.op.notation import Row, check_known, check_refused, rows
from tests.ir.relax.op.refused import REFUSED


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("row", rows(INFERRED), ids=str)
def test_what_is_known_of_the_result(row: Row) -> None:
    check_known(row)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("row", rows(REFUSED), ids=str)
def test_what_does_not_fit_is_refused(row: Row) -> None:
    check_refused(row)
