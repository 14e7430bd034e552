"""What is known of the results of operators, and how they refuse what does not fit."""

from __future__ import annotations

import pytest

from relaxpy.errors import StructInfoError
from tests.ir.relax.op.inferred import INFERRED
from tests.ir.relax.op.notation import Row, evaluate, rows
from tests.ir.relax.op.refused import REFUSED


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("row", rows(INFERRED), ids=str)
def test_what_is_known_of_the_result(row: Row) -> None:
    found, expected = evaluate(f"({row.call}, {row.result})")
    assert found.struct_info == expected


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("row", rows(REFUSED), ids=str)
def test_what_does_not_fit_is_refused(row: Row) -> None:
    if row.twin:
        assert evaluate(row.twin).struct_info is not None
    with pytest.raises(StructInfoError) as caught:
        evaluate(row.call)
    found = caught.value.diagnostic
    name = f"relax.{row.call.partition('(')[0]}: "
    assert found.message.startswith(name)
    if row.message.startswith("..."):
        assert row.message.removeprefix("...") in found.message
    else:
        assert found.message.removeprefix(name).startswith(row.message)
    assert found.rule in ("DER-36", "SI-15", "OP-9")
    assert bool(found.hint) == bool(row.hint)
    assert (found.hint or "").startswith((row.hint or "").removesuffix("..."))
