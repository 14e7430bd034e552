"""Reductions along axes known at run time, their range in 16 bits, and their digits in 64."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.plugins.importing.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import one

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(5)


def model(
    op: str,
    operands: Mapping[str, Array],
    sizes: Mapping[str, Sequence[Any]],
    rank: int | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, whose result has a rank if that is stated."""
    proto = one(op, operands, attributes, ["y"], sizes, opset=23)
    if rank is not None:
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
        proto.graph.output[0].CopyFrom(result)
    return proto


REDUCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceL2": lambda x, **options: np.sqrt(np.sum(x * x, **options)),
    "ReduceLogSumExp": lambda x, **options: np.log(np.sum(np.exp(x), **options)),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_how_many_axes_are_reduced_is_known_at_run_time(op: str, noop: int) -> None:
    x = RNG.standard_normal((4, 3, 2)).astype("float32")
    sizes = {"x": ["n", 3, 2], "axes": ["k"]}
    operands = {"x": x, "axes": np.array([0])}
    kept = relaxpy.compile(from_onnx(model(op, operands, sizes, noop_with_empty_axes=noop)))
    for axes in ([], [1], [-1, 0], [2, 0, 1]):
        along = tuple(axes) if axes or noop else None
        found = kept["main"](x, np.array(axes, "int64"))
        expected = REDUCTIONS[op](x, axis=along, keepdims=True)
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    declared = model(op, operands, sizes, 1, keepdims=0, noop_with_empty_axes=noop)
    found = relaxpy.compile(from_onnx(declared))["main"](x, np.array([-1, 0]))
    np.testing.assert_allclose(found, REDUCTIONS[op](x, axis=(2, 0)), 1e-5, 1e-5)


IDENTITIES = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf}


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_reductions_of_no_elements(target: str) -> None:
    x, axes = np.zeros((2, 0), "float32"), np.array([1])
    for op, expected in {**IDENTITIES, "ReduceL2": 0, "ReduceMean": np.nan}.items():
        run = relaxpy.compile(from_onnx(model(op, {"x": x, "axes": axes}, {})), target)["main"]
        np.testing.assert_array_equal(run(x, axes), np.full((2, 1), expected, "float32"))


def test_a_result_of_unknown_rank_is_refused() -> None:
    operands = {"x": np.zeros((2, 3), "float32"), "axes": np.array([0])}
    proto = model("ReduceSum", operands, {"axes": ["k"]}, keepdims=0)
    with pytest.raises(OpNotImplemented, match=r"number of axes is k, .*expected keepdims=1, or"):
        from_onnx(proto)


@pytest.mark.parametrize(
    ("op", "expected", "attributes"),
    [
        ("ReduceL2", 20000.0, {}),
        ("ReduceLogSum", np.log(1e6), {}),
        ("LpNormalization", np.full((2, 2500), 0.02), {}),
        ("MeanVarianceNormalization", np.zeros((2, 2500)), {"axes": [0, 1]}),
    ],
)
def test_inner_values_are_wider_than_float16(op, expected, attributes) -> None:
    x = np.full((2, 2500), 400 if op != "ReduceLogSum" else 200, "float16")
    if op.startswith("Reduce"):
        x = x.reshape(2, 2500)[:1] if op == "ReduceL2" else x
    proto = model(op, {"x": x}, {}, **attributes)
    found = relaxpy.compile(from_onnx(proto))["main"](x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype("float64"), expected, 2e-3, 2e-3)


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_normalisation_has_the_digits_of_float64(op: str) -> None:
    x, scale = RNG.standard_normal((3, 7)), RNG.standard_normal(7)
    proto = model(op, {"x": x, "scale": scale}, {}, epsilon=1e-5)
    found = relaxpy.compile(from_onnx(proto))["main"](x, scale)
    centred = x - x.mean(-1, keepdims=True) if op == "LayerNormalization" else x
    size = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
    np.testing.assert_allclose(found, centred / size * scale, 1e-12, 1e-12)


@pytest.mark.parametrize("index", [-5, 4])
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_the_index_that_is_stated_is_reported(op: str, index: int) -> None:
    x, indices = np.zeros((4, 3), "float32"), np.array([[0], [index]])
    main = relaxpy.compile(from_onnx(model(op, {"x": x, "i": indices}, {})))["main"]
    with pytest.raises(RuntimeCheckError, match=f"index {index} is outside dimension 0 .* size 4"):
        main(x, indices)
