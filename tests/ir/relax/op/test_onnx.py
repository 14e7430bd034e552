"""Operators compute what ONNX Runtime computes, where NumPy and SciPy have no counterpart."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from relaxpy.exec.compile import compile
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from tests.fuzz.seed import SEED
from tests.ir.relax.op.cases import CASES, Case
from tests.ir.relax.op.comparison import check, define
from tests.ir.relax.op.variants import module

for _package in ("onnx", "onnxruntime"):
    pytest.importorskip(
        _package, reason=f"{_package} is not installed: pip install 'relaxpy[oracle]'"
    )
models = importlib.import_module("tests.ir.relax.op.onnx_models")


@pytest.mark.parametrize("operator", sorted(models.TRANSLATIONS))
def test_operators_compute_what_onnx_runtime_computes(
    operator: str, request: pytest.FixtureRequest
) -> None:
    rows = [case for case in CASES if case.operator == operator]
    most = len(rows)
    if not request.config.getoption("--whole-table"):  # half of the rows, other ones each day
        rows = random.Random(f"{SEED} {operator}").sample(rows, most)
        most = max(2, most // 2)
    compared: Counter[bool] = Counter()
    for case in rows:
        compared[_is_compared(case)] += 1
        if compared[True] == most:
            break
    assert compared[True], f"ONNX Runtime evaluates none of {compared[False]} rows"


def _is_compared(case: Case) -> bool:
    """Compare one row, if ONNX Runtime evaluates it."""
    params = [
        rx.Var(f"x{k}", rx.TensorStructInfo(x.shape, DataType(x.dtype)))
        for k, x in enumerate(case.inputs)
    ]
    call = case.call(*params)
    assert isinstance(call, rx.Call)
    inputs = tuple(np.asarray(x) for x in case.inputs)
    values = models.evaluated(call, inputs)
    if values is None:
        return False
    with np.errstate(all="ignore"):
        definition = define(case.expected, inputs)
        found = compile(module(case, inputs, "static"), "numpy")["main"](*inputs)
    try:
        # Both are off by as much as one of them may be.
        check(found, replace(definition, values=values), 2 * case.roundings)
    except AssertionError as difference:
        raise AssertionError(f"{case.name}: {difference}") from None
    return True
