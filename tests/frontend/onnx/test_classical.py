"""Classical models of the domain ai.onnx.ml, as ONNX Runtime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxpy
from relaxpy.frontend.shared.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(11)
X = RNG.standard_normal((7, 4)).astype(np.float32)


def model(op: str, outputs: list[str], *, version: int = 3, **attributes: Any) -> Any:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check(proto: Any) -> None:
    """Compare with ONNX Runtime on both targets, for two sizes by one executable."""
    session = ort.InferenceSession(proto.SerializeToString())
    mod = from_onnx(proto)
    for target in ("native", "numpy"):
        main = relaxpy.compile(mod, target)["main"]
        for x in (X, X[:1]):
            expected = session.run(None, {"x": x})
            found = main(x) if len(expected) > 1 else (main(x),)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


KERNELS = [
    {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]},
    {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0]},
    {"kernel_type": "POLY", "kernel_params": [0.5, 1.0, 3.0]},
    {"kernel_type": "SIGMOID", "kernel_params": [0.3, 0.2, 0.0]},
]


@pytest.mark.parametrize(
    ("kernel", "sizes", "sure"),
    [
        *((kernel, [3, 2], False) for kernel in KERNELS),
        (KERNELS[1], [2, 3, 1, 2], False),
        (KERNELS[1], [3, 2], True),
        (KERNELS[0], [2, 3, 1, 2], True),
    ],
)
def test_support_vectors_decide_between_pairs_of_classes(
    kernel: dict[str, Any], sizes: list[int], sure: bool
) -> None:
    classes, count = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "classlabels_ints": list(range(10, 10 + classes)),
        "coefficients": RNG.standard_normal((classes - 1) * count).tolist(),
        "rho": RNG.standard_normal(pairs).tolist(),
        "support_vectors": RNG.standard_normal(count * 4).tolist(),
        "vectors_per_class": sizes,
        **kernel,
    }
    if sure:
        attributes["prob_a"] = (-RNG.random(pairs) - 0.5).tolist()
        attributes["prob_b"] = RNG.standard_normal(pairs).tolist()
    check(model("SVMClassifier", ["label", "scores"], **attributes))


@pytest.mark.parametrize(
    ("kernel", "supports", "one_class"),
    [*((kernel, 5, 0) for kernel in KERNELS), (KERNELS[0], 0, 0), (KERNELS[1], 5, 1)],
)
def test_support_vectors_predict_numbers(
    kernel: dict[str, Any], supports: int, one_class: int
) -> None:
    attributes: dict[str, Any] = {
        "coefficients": RNG.standard_normal(supports or 4).tolist(),
        "rho": [0.2],
        "n_supports": supports,
        "one_class": one_class,
        "support_vectors": RNG.standard_normal(supports * 4).tolist() or [0.0],
        **kernel,
    }
    check(model("SVMRegressor", ["y"], **attributes))


@pytest.mark.parametrize(
    "keys", [{"classlabels_int64s": [3, 5, 7, 9]}, {"classlabels_strings": [*"abcd"]}]
)
def test_maps_of_probabilities_are_dictionaries(keys: dict[str, Any]) -> None:
    proto = model("ZipMap", ["y"], **keys)
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": X})[0]
    for target in ("native", "numpy"):
        assert list(relaxpy.compile(from_onnx(proto), target)["main"](X)) == expected


def tree(**changes: Any) -> dict[str, Any]:
    """Two trees that share nodes' arrays: a set and a bound, then a bound alone."""
    attributes: dict[str, Any] = {
        "n_targets": 2,
        "nodes_featureids": [0, 1, 2],
        "nodes_splits": numpy_helper.from_array(np.array([0, 0.1, -0.2], np.float32)),
        "nodes_modes": numpy_helper.from_array(np.array([6, 0, 4], np.uint8)),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 0],
        "nodes_falseleafs": [1, 1, 1],
        "membership_values": numpy_helper.from_array(
            np.array([X[0, 0], X[3, 0], np.nan], np.float32)
        ),
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32)),
        "tree_roots": [0, 2],
    }
    return {**attributes, **changes}


@pytest.mark.parametrize("changes", [{}, {"aggregate_function": 0}])
def test_trees_walk_by_sets_and_bounds(changes: dict[str, Any]) -> None:
    check(model("TreeEnsemble", ["y"], version=5, **tree(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_truenodeids": [9, 0, 3]},
        {"nodes_truenodeids": [0, 0, 3]},
        {"leaf_targetids": [0, 1, 2, 0]},
        {"tree_roots": [-1]},
        {"post_transform": 9},
        {"aggregate_function": -1},
        {"nodes_featureids": [0]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_trees_that_name_what_there_is_not_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(OpNotImplemented):
        from_onnx(model("TreeEnsemble", ["y"], version=5, **tree(**changes)))
