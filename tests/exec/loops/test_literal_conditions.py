"""A literal operand decides a junction; the operands before it are evaluated all the same."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.arith import Analyzer
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import from_source
from relaxpy.tir import IfThenElse, PrimFunc

FAILING = ("X[4] > 0", "T.int64(1) // n > 5", "n % n == 0", "T.isnan(T.Cast('float32', X[9]))")
DECIDED = (
    "{} or True",
    "{} and False",
    "not ({} and False)",
    "{} and n < 0 and n > 0",
    "{} or n < 1 or n > 0",
)


def kernel(condition: str) -> PrimFunc:
    func = from_source(f"""
@T.prim_func
def f(X: T.Buffer((3,), "int32"), n: T.int64):
    if {condition}:
        X[0] = 7
""")
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize("failing", FAILING)
def test_an_operand_before_the_literal_that_decides_is_evaluated(failing: str, target: str) -> None:
    for decided in DECIDED:
        run = relaxpy.compile(kernel(decided.format(failing)), target=target)["f"]
        with pytest.raises(RuntimeCheckError, match=r"index|division"):
            run(np.ones(3, "int32"), 0)


@pytest.mark.parametrize("decided", DECIDED)
def test_simplification_keeps_the_operand(decided: str) -> None:
    branch = kernel(decided.format("X[4] > 0")).body
    assert isinstance(branch, IfThenElse)
    assert "X[4]" in str(Analyzer().simplify(branch.condition))


@pytest.mark.parametrize("harmless", ["n > 3", "n % 2 == 0", "n // T.int64(3) < 4"])
def test_operands_that_cannot_fail_are_folded(harmless: str) -> None:
    branch = kernel(f"{harmless} or True").body
    assert isinstance(branch, IfThenElse)
    assert str(branch.condition) == "T.bool(True)"
