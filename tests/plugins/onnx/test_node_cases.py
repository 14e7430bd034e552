"""The ONNX project's own tests, by its own runner: a part of them, or all with --whole-table.

Those in node_cases.txt reach every branch of the converters that all reach; of the light models,
seven are left out, whose converters the others reach.
"""

import functools
import unittest
import warnings
from pathlib import Path
from typing import Any

import onnx.backend.test
import pytest

from relaxpy.relax.frontend.onnx import backend
from tests import rows

_CHOSEN = Path(__file__).with_name("node_cases.txt").read_text(encoding="utf-8").split()
_KINDS = ("Node", "Real", "Simple", "PyTorchConverted", "PyTorchOperator")
#: Each process that runs some computes the expected values of all.
_PARTS = 8 if rows.whole_tables() else 1
#: Tests that relaxpy does not pass, and why.
NOT_PASSED = {
    **dict.fromkeys(
        (
            *("test_bernoulli", "test_bernoulli_double", "test_bernoulli_seed"),
            *("test_bernoulli_expanded", "test_bernoulli_double_expanded"),
            "test_bernoulli_seed_expanded",
        ),
        "the expected values are draws of another generator",
    ),
    **dict.fromkeys(
        ("test_dft_inverse", "test_dft_inverse_opset19"),
        "rounding of a fast transform is expected where the exact value is 0",
    ),
    **dict.fromkeys(
        ("test_gradient_of_add", "test_gradient_of_add_and_mul"),
        "ai.onnx.preview.training.Gradient is not imported: Relax has a pass for gradients",
    ),
    "test_attention_4d_causal_fp16_expanded": "two elements differ by one unit of float16",
    **dict.fromkeys(
        (
            "test_resize_downsample_scales_cubic_align_corners",
            "test_resize_downsample_scales_linear_align_corners",
        ),
        "the corner of a size that is not whole is aligned, not that of the result",
    ),
    "test_loop16_seq_none": "the runner asks for the length of a tensor of rank 0 in a sequence",
}


@functools.cache
def _cases() -> dict[str, type[unittest.TestCase]]:
    """Each test of the runner on the processor, by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = onnx.backend.test.BackendTest(backend.RelaxpyBackend, __name__)
        suites = runner.test_cases
    return {
        name: suite
        for kind in _KINDS
        for suite in [suites[f"OnnxBackend{kind}ModelTest"]]
        for name in dir(suite)
        if name.startswith("test_") and name.endswith("_cpu")
    }


class _Result(unittest.TestResult):
    """The names of the tests that failed, each with the last line of its error."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[str, str] = {}

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self.failed[test.id().rpartition(".")[2]] = f"{err[0].__name__}: {err[1]}"

    addFailure = addError  # noqa: N815


@pytest.mark.parametrize("part", range(_PARTS))
def test_models_compute_what_onnx_says(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(_cases())
    if not rows.whole_tables():
        names = [f"{name}_cpu" for name in _CHOSEN]
        monkeypatch.setenv("RELAXPY_TARGET", "numpy")  # which compiles faster
    wanted = names[part::_PARTS]
    assert wanted
    result = _Result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unittest.TestSuite(_cases()[name](name) for name in wanted).run(result)
    known = {f"{name}_cpu" for name in NOT_PASSED}
    failed = {name: why for name, why in result.failed.items() if name not in known}
    assert failed == {}
    assert len(result.skipped) < len(wanted)
