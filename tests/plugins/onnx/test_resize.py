"""Every coordinate mode of Resize with every rounding, on sizes whose products are not whole.

The oracle is ONNX Runtime.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.rows import third

ort = pytest.importorskip("onnxruntime")

MODES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)
METHODS = (
    *(("nearest", rounding) for rounding in ("round_prefer_floor", "round_prefer_ceil")),
    *(("nearest", rounding) for rounding in ("floor", "ceil")),
    *(("linear", "floor"), ("cubic", "floor")),
)
#: Widths, each with a scale or a size.
CASES = (
    *((9, 0.5), (9, 0.6), (33, 0.3), (21, 1.3), (38, 1.25), (5, 1.7), (22, 1.1), (31, 2 / 3)),
    *((15, 1.2), (13, 28), (28, 38), (11, 26), (9, 4), (7, 1), (14, 30), (12, 4), (6, 18)),
)


def resized(mode: str) -> onnx.ModelProto:
    """A node for each method and drawn case; even widths are known when the program runs."""
    nodes, inputs, outputs = [], {}, []
    numbers = {"roi": (TensorProto.FLOAT, [0, 0, 0, 0.25, 1, 1, 1, 0.8125])}
    for size, target in third(CASES):
        by_scale = isinstance(target, float)
        kind = TensorProto.FLOAT if by_scale else TensorProto.INT64
        numbers[f"to{size}_{target}"] = (kind, [1, 1, 1 if by_scale else 2, target])
        inputs[f"x{size}"] = [1, 1, 2, size if size % 2 else f"w{size}"]
        for method, rounding in METHODS:
            name = f"y{len(nodes)}"
            operands = [f"x{size}", "roi", f"to{size}_{target}"]
            nodes.append(
                helper.make_node(
                    "Resize",
                    operands if by_scale else [*operands[:2], "", operands[2]],
                    [name],
                    mode=method,
                    nearest_mode=rounding,
                    coordinate_transformation_mode=mode,
                    extrapolation_value=7.5,
                )
            )
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        outputs,
        [helper.make_tensor(n, kind, [len(v)], v) for n, (kind, v) in numbers.items()],
    )
    imports = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize("mode", MODES)
def test_positions_are_those_of_onnx_runtime(mode: str) -> None:
    rng = np.random.default_rng(3)
    proto: Any = resized(mode)
    feed = {
        item.name: rng.standard_normal((1, 1, 2, int(item.name[1:]))).astype("float32")
        for item in proto.graph.input
    }
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    found = relaxpy.compile(from_onnx(proto), "numpy")["main"](*feed.values())
    for node, a, b in zip(proto.graph.node, found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4, err_msg=str(node.input))


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_the_weights_of_a_filter_are_computed_once_for_all_rows(method: str) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "to"], ["y"], mode=method, antialias=1, axes=[2, 3]
    )
    graph = helper.make_graph(
        [node],
        "filter",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 50, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("to", TensorProto.INT64, [2], [21, 17])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    executable = relaxpy.compile(from_onnx(model), "native")
    image = np.random.default_rng(5).standard_normal((2, 3, 50, 40)).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString())
    [expected] = session.run(None, {"x": image})
    np.testing.assert_allclose(executable["main"](image), expected, rtol=1e-5, atol=1e-5)
    tree = executable.kernel_source("resize", "tree").splitlines()
    sums = [line for line in tree if line.strip().startswith("filtered[")]
    assert len(sums) == 2
    assert not any("float64" in line for line in sums)
