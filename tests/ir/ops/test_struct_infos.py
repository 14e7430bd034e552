"""What is known of the results of operators, and how they refuse what does not fit."""

import pytest

from tests.ir.ops.inferred import INFERRED
from tests.ir.ops.notation import Row, check_known, check_refused, rows
from tests.ir.ops.refused import REFUSED
from tests.rows import check_all, grouped


def by_operator(table: str) -> dict[str, list[Row]]:
    return grouped(rows(table), lambda row: row.call.partition("(")[0])


KNOWN, WRONG = by_operator(INFERRED), by_operator(REFUSED)


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("operator", KNOWN)
def test_what_is_known_of_the_result(operator: str) -> None:
    check_all(KNOWN[operator], check_known)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("operator", WRONG)
def test_what_does_not_fit_is_refused(operator: str) -> None:
    check_all(WRONG[operator], check_refused)
