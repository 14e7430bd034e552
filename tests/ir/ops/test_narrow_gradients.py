"""Gradients of 16-bit floats are those of float32 at the same inputs, rounded once."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from tests.ir.ops.cases import Case
from tests.ir.ops.test_gradients import COMPARED, fields, gradient_program
from tests.rows import draw, third, whole_tables

#: Factors of the inputs of a row, by datatype: moderate, large and tiny values.
SCALES = {"float16": (1.0, 300.0, 1e-3), "bfloat16": (1.0, 1e18, 1e-18)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A row of a third of the operators; all rows with `--whole-table`."""
    if "case" in metafunc.fixturenames:
        rows = [(case, dtype) for case in COMPARED for dtype in SCALES]
        drawn = draw(metafunc.config, rows, lambda row: row[0].operator)
        if not whole_tables():
            drawn = third({row[0].operator: row for row in drawn}.values())
        ids = [f"{case.name}-{dtype}" for case, dtype in drawn]
        metafunc.parametrize(("case", "dtype"), drawn, ids=ids)


def narrow(x: Any, dtype: str, scale: float = 1.0) -> Any:
    """A multiple of an array of floats, in its range; any other array as it is."""
    if x.dtype.kind != "f":
        return x
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.clip(x.astype("float64") * scale, -largest, largest).astype(dtype)


def test_the_gradient_is_rounded_once(case: Case, dtype: str) -> None:
    runs, results = [], []
    for floats in (dtype, "float32"):
        program, _, dtypes = gradient_program(case, symbolic=False, floats=floats)
        runs.append(compile(program, "numpy")["main"])
        results.append(dtypes)
    random = np.random.default_rng(0)
    weights = [
        random.standard_normal(np.shape(v)).astype(d)
        for v, d in zip(fields(case.expected(*case.inputs)), results[0], strict=True)
    ]
    limits = ml_dtypes.finfo(dtype)
    for scale in SCALES[dtype]:
        inputs = [narrow(np.asarray(x), dtype, scale) for x in case.inputs]
        wide = [x.astype("float32") if x.dtype == dtype else x for x in inputs]
        with np.errstate(all="ignore"):
            found = fields(runs[0](*inputs, *weights))
            expected = fields(
                runs[1](*wide, *(w.astype(d) for w, d in zip(weights, results[1], strict=True)))
            )
        for a, b in zip(found, expected, strict=True):
            fits = np.abs(b) < float(limits.max)
            largest = np.max(np.abs(b), initial=0, where=fits)
            np.testing.assert_allclose(
                np.where(fits, a.astype("float64"), 0),
                np.where(fits, b, 0),
                rtol=float(limits.eps),
                atol=float(limits.eps) * largest + float(limits.tiny),
                err_msg=f"inputs times {scale:g}",
            )
