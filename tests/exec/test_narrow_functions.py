"""Every operator on elements of narrow floats is computed in float32, and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.ir.ops.definition.axis_rules import BROADCASTING, BY_ELEMENT
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.cases import CASES, Array, Case
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor

DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
COUNTS = {"native": 10_000, "numpy": 10_000, "reference": 200}
"""The points, which are few for the evaluator, as it computes each by itself."""
ON_ELEMENTS = {
    name
    for name, op in registered_ops().items()
    if op.record.axes in (BY_ELEMENT["axes"], BROADCASTING["axes"])
}
WITHOUT_NEW_FLOATS = {
    *("relax.where", "relax.builtin.stop_lift_params", "relax.ccl.allreduce"),
    *(f"relax.bitwise_{name}" for name in ("and", "or", "xor", "not")),
    *("relax.left_shift", "relax.right_shift", "relax.astype"),
}
"""Operators that compute no float, or of several processes."""
DEFINITIONS: dict[str, Callable[[Array], Array]] = {
    # By the formula of the table, exp(x) - 1 is 0 for small x.
    "relax.nn.selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    )
}
CANCELLED = {"relax.nn.gelu", "relax.nn.gelu_tanh"}
"""Operators that multiply x by 1 and a number near -1, which has the error of float32 beside 1."""


def is_swept(case: Case) -> bool:
    """True if a case is a function of floats of one shape."""
    shapes = {x.shape for x in case.inputs}
    are_floats = all(x.dtype.kind == "f" for x in case.inputs)
    is_function = case.operator in ON_ELEMENTS - WITHOUT_NEW_FLOATS
    return is_function and are_floats and len(shapes) == 1 and shapes != {()}


def function_of(case: Case) -> tuple[object, ...]:
    """What decides the function of a case."""
    call = case.call(*(rx.Var("x", tensor(2)) for _ in case.inputs))
    assert isinstance(call, rx.Call)
    return case.operator, len(case.inputs), str(call.attrs)


CHOSEN = {function_of(case): case for case in CASES if is_swept(case) and not case.only}
SWEPT = {case.name: case for case in CHOSEN.values()}


def test_each_operator_on_elements_is_swept() -> None:
    assert {case.operator for case in SWEPT.values()} == ON_ELEMENTS - WITHOUT_NEW_FLOATS


def points(count: int, dtype: Any, number: int) -> list[Array]:
    """Operands: of a half any bits, of the others numbers around 1; some pairs are close."""
    draw = np.random.default_rng(3)
    operands = []
    for _ in range(number):
        bits = draw.integers(0, 1 << 8 * dtype.itemsize, count)
        x = bits.astype(f"uint{8 * dtype.itemsize}").view(dtype)
        x[::2] = (draw.standard_normal(len(x[::2])) * 3).astype(dtype)
        operands.append(x)
    for other in operands[1:]:
        other[::3] = (
            operands[0][::3].astype("float64") * draw.choice((1, 1.01, -1), len(other[::3]))
        ).astype(dtype)
    for x in operands:
        x[~np.isfinite(x.astype("float64"))] = 1
    return operands


@pytest.mark.each_choice
@pytest.mark.parametrize("target", COUNTS)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("row", SWEPT)
def test_a_function_is_rounded_once(row: str, name: str, target: str) -> None:
    case, dtype = SWEPT[row], np.dtype(getattr(ml_dtypes, name, name))
    with np.errstate(all="ignore"):
        operands = points(COUNTS[target], dtype, len(case.inputs))
    program = returning(case.call, *(tensor(len(x), dtype=name) for x in operands))
    definition = DEFINITIONS.get(case.operator, case.expected)
    with np.errstate(all="ignore"):
        found = relaxpy.compile(program, target)["main"](*operands)
        exact = np.asarray(definition(*(x.astype("float64") for x in operands)))
        if found.dtype != dtype:  # a test, such as isnan
            np.testing.assert_array_equal(found, exact)
            return
        info = ml_dtypes.finfo(dtype)
        rounded = exact.astype(dtype).astype("float64")
        # Numbers beyond the greatest one round to it or to an infinity.
        is_finite = np.isfinite(rounded) & (abs(exact) <= float(info.max))
        size = np.maximum(abs(exact), float(info.smallest_normal))
        last = np.exp2(np.floor(np.log2(size))) * float(info.eps)
        scale = abs(operands[0].astype("float64")) if case.operator in CANCELLED else abs(exact)
        error = abs(found.astype("float64") - exact)
        # Numbers that are subnormal in float32 may be 0.
        bound = 0.5 * last + 8 * (2.0**-24 * scale + float(np.finfo("float32").tiny))
        right = np.where(is_finite, error <= bound, True)
        right |= np.isnan(exact) & np.isnan(found.astype("float64"))
    wrong = np.flatnonzero(~right)[:3]
    assert not wrong.size, [(*(x[k] for x in operands), found[k], exact[k]) for k in wrong]
