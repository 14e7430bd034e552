"""Operators of object detection and of quantisation by hand beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from tests.ir.relay.test_operators import program

RNG = np.random.default_rng(7)
IMAGE = RNG.standard_normal((2, 4, 6, 5)).astype("float32")
MATRIX = RNG.standard_normal((3, 5)).astype("float32")
DETECTED = np.array([[[0, 0.9, 1], [-1, 0.8, 2], [1, 0.1, 3], [2, 0.7, 4]]], "float32")


CASES: list[tuple[str, tuple[Any, ...], Callable[..., Any]]] = [
    (
        "vision.get_valid_counts(%0, 0.5f)",
        (DETECTED,),
        lambda x: (
            np.array([2]),
            np.array([[*x[0, [0, 3]], [-1] * 3, [-1] * 3]]),
            np.array([[0, 3, -1, -1]]),
        ),
    ),
    (
        "dyn.nn.upsampling(%0, 2f, %1)",
        (IMAGE, np.array(3, "float32")),
        lambda x, _: x.repeat(2, 2).repeat(3, 3),
    ),
    (
        "qnn.simulated_quantize(%0, 1, 0.1f, 3)",
        (MATRIX * 20,),
        lambda x: np.clip(np.round(x / np.float32(0.1)) + 3, -128, 127),
    ),
    ("qnn.simulated_quantize(%0, 0, 0.1f, 3)", (MATRIX,), lambda x: x),
    (
        "qnn.simulated_dequantize(%0, 2, %1, 3, axis=0)",
        (MATRIX, np.array([1, 2, 3], "float32")),
        lambda x, s: (x - 3) * s[:, None],
    ),
    (
        "fixed_point_multiply_per_axis(%0, %1, %2, %3, axes=[0], is_lshift_required=True)",
        (
            np.array([[100, -7], [3, 1000]], "int32"),
            np.array([1 << 30, 3 << 29], "int32"),
            np.array([1, 0], "int32"),
            np.array([0, 2], "int32"),
        ),
        lambda x, *_: np.floor(x * [[1], [3 / 16]] + 0.5),
    ),
]


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(("call", "inputs", "oracle"), CASES, ids=[c[0][:48] for c in CASES])
def test_operators_agree_with_numpy(
    call: str, inputs: tuple[np.ndarray, ...], oracle: Callable[..., Any]
) -> None:
    module = relay.parse(program(call, inputs))
    expected = oracle(*inputs)
    for kind in ("debug", "vm"):
        result = relay.create_executor(kind, mod=module).evaluate()(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        wanted = expected if isinstance(result, tuple) else (expected,)
        for one, other in zip(results, wanted, strict=True):
            assert one.shape == np.shape(other)
            np.testing.assert_allclose(one, other, 1e-4, 1e-4)


def test_all_class_non_max_suppression_is_that_of_relax() -> None:
    text = """fn(%b: Tensor[(1, 3, 4), float32], %s: Tensor[(1, 1, 3), float32]) {
      vision.all_class_non_max_suppression(%b, %s, 2i64, 0.5f, 0.1f) }"""
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.7]]], "float32")
    chosen, count = relay.create_executor().evaluate(relay.parse_expr(text))(boxes, scores)
    assert chosen[: int(count[0])].tolist() == [[0, 0, 0], [0, 0, 2]]
