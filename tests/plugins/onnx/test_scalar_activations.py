"""Activations of scalars, and linear models of symbolic numbers of features, as ONNX Runtime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

import relaxpy  # noqa: E402
from relaxpy.relax.frontend.onnx import from_onnx  # noqa: E402

ACTIVATIONS: dict[str, dict[str, float]] = {
    "Celu": {"alpha": 2.0},
    "Elu": {"alpha": 2.0},
    "Selu": {},
    "LeakyRelu": {"alpha": 0.1},
    "HardSigmoid": {},
    "HardSwish": {},
    "Mish": {},
    "ThresholdedRelu": {"alpha": 0.5},
    "Softplus": {},
    "Gelu": {},
    "Relu": {},
    "Sigmoid": {},
}


def check(node: Any, x: Any, dims: Any, results: dict[str, int], opsets: list[Any]) -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    outputs = [helper.make_tensor_value_info(y, kind, None) for y, kind in results.items()]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    expected = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for target in ("numpy", "native"):
        found = relaxpy.compile(from_onnx(model), target)["main"](x)
        for one, other in zip(found if len(results) > 1 else [found], expected, strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


DEFINITIONS: dict[str, Callable[[Any], Any]] = {
    "Celu": lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)),
    "Elu": lambda x: np.where(x > 0, x, 2 * np.expm1(x)),
    "Selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "LeakyRelu": lambda x: np.where(x > 0, x, 0.1 * x),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_activations_of_float16_are_rounded_once(name: str, target: str) -> None:
    x = (np.random.default_rng(1).standard_normal(10_000) * 3).astype("float16")
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT16, x.shape)
    node = helper.make_node(name, ["x"], ["y"], **ACTIVATIONS[name])
    graph = helper.make_graph([node], "g", [info], [result])
    opsets = [helper.make_opsetid("", 22)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    found = relaxpy.compile(from_onnx(model), target)["main"](x)
    exact = DEFINITIONS[name](x.astype("float64"))
    last = np.spacing(abs(exact).astype("float16")).astype("float64")
    # Steps in float32 have its error beside 1 and beside x.
    bound = 0.5 * last + 8 * 2.0**-24 * np.maximum(abs(x.astype("float64")), 1)
    assert (abs(found.astype("float64") - exact) <= bound).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_keep_the_shape(name: str) -> None:
    node = helper.make_node(name, ["x"], ["y"], **ACTIVATIONS[name])
    for x in (np.array(-1.5), np.array(2.0), np.array([[-90.0, -0.5, 0.0, 0.7, 90.0]])):
        opsets = [helper.make_opsetid("", 20)]
        check(node, x.astype("float32"), x.shape, {"y": TensorProto.FLOAT}, opsets)


def test_a_linear_classifier_takes_observations_of_unknown_width() -> None:
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_ints=[0, 1, 2],
        coefficients=np.linspace(-1, 1, 6).tolist(),
        intercepts=[0.0, 0.1, 0.2],
        post_transform="SOFTMAX",
    )
    x = np.random.default_rng(0).standard_normal((4, 2)).astype("float32")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    results = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    check(node, x, ["n", "features"], results, opsets)
