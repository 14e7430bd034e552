"""Scalar expressions that use subexpressions again: each is computed once, on every target.

Text has none, but `te` and PrimFuncs that Python makes do: an unrolled search, a recurrence.
"""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import CompileError, RelaxpyError
from relaxpy.exec.machine.tuning import NumPy
from tests.counting import calls

A = tir.decl_buffer((8,), "int32", name="A")
B = tir.decl_buffer((8,), "int32", name="B")
VAR = tir.Var("i", "int32")
ELEMENT = A[VAR]
Step = Callable[[tir.PrimExpr, int], tir.PrimExpr]
STEPS: dict[str, Step] = {
    "an index": lambda e, k: A[tir.floormod(e + k, 8)],
    "two indices": lambda e, k: A[tir.floormod(e, 8)] + A[tir.floormod(e + 1, 8)],
    "either arm": lambda e, k: tir.if_then_else(k < ELEMENT, e + 1, e * 2),
    "indices in either arm": lambda e, k: tir.if_then_else(k % 3 < ELEMENT, A[e], A[e + 1]),
    "indices in a select": lambda e, k: tir.Select(k % 3 < ELEMENT, A[e + 1], A[e]),
    "divisors in either arm": lambda e, k: tir.if_then_else(
        k < ELEMENT, tir.floordiv(e, ELEMENT - k), tir.floordiv(e + 9, ELEMENT - 9)
    ),
    "indices in a conjunction": lambda e, k: tir.Select(tir.And(A[e] > 0, A[e + 1] > 1), e, A[e]),
    "indices in a nested arm": lambda e, k: tir.if_then_else(
        ELEMENT > 0, tir.if_then_else(ELEMENT > 1, A[e], A[e + 1]), A[e + 2]
    ),
}


def kernel(step: Step, depth: int) -> tir.PrimFunc:
    expr = ELEMENT
    for k in range(depth):
        expr = step(expr, k)
    body = tir.For(VAR, 0, 8, tir.ForKind.SERIAL, tir.BufferStore(B, expr, [VAR]))
    a, b = tir.Var("a", "handle"), tir.Var("b", "handle")
    attrs = {"global_symbol": "main"}
    return tir.PrimFunc([a, b], body, buffer_map={a: A, b: B}, attrs=attrs)


def values(func: tir.PrimFunc, target: str) -> list[int]:
    result = np.zeros(8, "int32")
    relaxpy.compile(func, target)["main"](np.array([0, 1, 2, 3, 2, 1, 0, 3], "int32"), result)
    return result.tolist()


@pytest.mark.timeout(60)  # 2 ** 40 steps would be no limit, but no answer either
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("step", STEPS)
def test_each_is_computed_once(step: str, target: str) -> None:
    assert values(kernel(STEPS[step], 40), target) == values(kernel(STEPS[step], 40), "reference")


@pytest.mark.timeout(60)
def test_elements_in_indices_of_elements_are_written_once() -> None:
    few, many = (calls(kernel(STEPS["an index"], depth).script) for depth in (20, 40))
    assert many < 3 * few


def test_subexpressions_under_many_conditions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumPy, "REPETITIONS", 20)
    func = kernel(lambda e, k: tir.if_then_else(k % 3 < ELEMENT, A[e] + e, e), 12)
    with pytest.raises(CompileError, match="under too many different conditions") as caught:
        relaxpy.compile(func, "numpy")
    assert "to variables" in str(caught.value)


DEEP: dict[str, Step] = {
    "products": lambda e, k: e * 3 + k,
    "bits": lambda e, k: tir.bitwise_xor(e * 3, tir.IntImm("int32", k)),
    "selects": lambda e, k: tir.Select(k < ELEMENT, e + 1, ELEMENT),
    "conditions": lambda e, k: tir.if_then_else(k < ELEMENT, e + 1, ELEMENT),
    "conjunctions": lambda e, k: tir.Select(tir.And(k < e, ELEMENT < 100), e, ELEMENT),
    "elements": lambda e, k: A[tir.floormod(e, 8)],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("step", DEEP)
def test_deep_ones_are_computed_or_refused_with_what_to_write(step: str, target: str) -> None:
    """Those of 100 operations are computed; docs/security.md says so."""
    shallow = kernel(DEEP[step], 50)
    assert values(shallow, target) == values(shallow, "reference")
    message = ""
    try:
        values(kernel(DEEP[step], 250), target)
    except RelaxpyError as error:
        message = str(error)
    assert not message or "bind subexpressions to variables" in message
