"""ShareSums: moments of one tensor along the same axes are computed from one sum."""

import re
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.relax.transform import ShareSums
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import flow

X = np.random.default_rng(1).standard_normal((3, 5), dtype="float32") * 4 + 1


def program(lines: str, results: str, x: str = 'R.Tensor((3, 5), "float32")') -> IRModule:
    """A function of a tensor with one dataflow block; results are its outputs."""
    return flow(f"x: {x}", lines, f"({results},)")


COUNT = 'R.const(5.0, "float32")'


@pytest.mark.parametrize(
    ("before", "results", "after"),
    [
        (
            "a = R.sum(x, axis=[1]); b = R.mean(x, axis=[-1])",
            "a, b",
            f"a = R.sum(x, axis=[1]); b = R.divide(a, {COUNT})",
        ),
        (
            "b = R.mean(x, axis=[1], keepdims=True); a = R.sum(x, axis=[1])",
            "a, b",
            f"t = R.sum(x, axis=[1]); m = R.divide(t, {COUNT}); b = R.expand_dims(m, axis=[1]); "
            "a = t",
        ),
        (
            "a = R.std(x, axis=[1]); b = R.sum(x, axis=[1], keepdims=True)",
            "a, b",
            f"t = R.sum(x, axis=[1]); m = R.divide(t, {COUNT}); w = R.expand_dims(m, axis=[1]); "
            "d = R.subtract(x, w); q = R.multiply(d, d); s = R.sum(q, axis=[1]); "
            f"v = R.divide(s, {COUNT}); a = R.sqrt(v); b = R.expand_dims(t, axis=[1])",
        ),
    ],
)
def test_moments_share_their_sum(before: str, results: str, after: str) -> None:
    check(ShareSums(), program(before, results), program(after, results), X)


def test_the_pipeline_reads_the_tensor_once_for_each_sum() -> None:
    lines = (
        "a = R.sum(x, axis=[1]); b = R.mean(x, axis=[1]); c = R.variance(x, axis=[1]); "
        "d = R.std(x, axis=[1]); e = R.variance(x, axis=[1], keepdims=True); "
        "f = R.mean(x, axis=[1])"
    )
    for shape in ("(3, 5)", '("n", "m")'):
        mod = program(lines, "a, b, c, d, e, f", f'R.Tensor({shape}, "float32")')
        executable = relaxpy.compile(mod, "numpy")
        expected = (X.sum(1), X.mean(1), X.var(1), X.std(1), X.var(1, keepdims=True), X.mean(1))
        for found, wanted in zip(executable["main"](X), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert len(re.findall(r"np\.add\.reduce\(x(_rows)?,", executable.source)) == 1


@pytest.mark.parametrize(
    ("lines", "results", "x"),
    [
        ("a = R.sum(x, axis=[1]); b = R.mean(x, axis=[0])", "a, b", (3, 5)),
        ("a = R.mean(x, axis=[1]); b = R.mean(x, axis=[1], keepdims=True)", "a, b", (3, 5)),
        ("a = R.variance(x, axis=[1]); y = R.exp(x); b = R.mean(y, axis=[1])", "a, b", (3, 5)),
    ],
)
def test_moments_of_different_elements_stay(lines: str, results: str, x: Any) -> None:
    stays(ShareSums(), program(lines, results, f'R.Tensor({x}, "float32")'))


@pytest.mark.parametrize(
    "sinfo", ['R.Tensor((3, 5), "float16")', 'R.Tensor((3, 5), "int32")', "R.Tensor((3, 5))"]
)
def test_means_with_another_rounding_stay(sinfo: str) -> None:
    lines = "a = R.sum(x, axis=[1]); b = R.mean(x, axis=[1])"
    stays(ShareSums(), program(lines, "a, b", sinfo))
