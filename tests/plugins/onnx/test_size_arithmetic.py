"""Arithmetic on the sizes of inputs returns what ONNX Runtime does, known at import or not."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import model

ort = pytest.importorskip("onnxruntime")

N = helper.make_node
#: Constants by name; `n` and `m` are sizes of the input of shape (n, m, 4), `f` and `g` as floats.
CONSTANTS: dict[str, Any] = {
    "0": np.array([0]),
    "1": np.array([1]),
    "2": np.array([2]),
    "3": np.array([3]),
    "zero": np.array(0),
    "one": np.array(1),
    "half": np.array([0.5], np.float32),
    "quarter": np.array([0.25], np.float32),
    "float": np.array(0, np.float32),
    "flag": np.array([True]),
    "empty": np.zeros(0, np.int64),
}
SIZES = [
    N("Shape", ["x"], ["shape"]),
    N("Gather", ["shape", "0"], ["n"]),
    N("Gather", ["shape", "1"], ["m"]),
    N("Cast", ["n"], ["f"], to=1),
    N("Cast", ["m"], ["g"], to=1),
]
#: Steps from the sizes to the output `y`, with the version of the operators.
CASES: dict[str, tuple[int, list[onnx.NodeProto]]] = {
    "quotient": (13, [N("Div", ["n", "m"], ["y"])]),
    "quotient of a difference": (13, [N("Sub", ["n", "m"], ["d"]), N("Div", ["d", "m"], ["y"])]),
    "quotient of a number": (13, [N("Sub", ["m", "n"], ["d"]), N("Div", ["3", "d"], ["y"])]),
    "quotient of floats": (13, [N("Div", ["f", "g"], ["y"])]),
    "difference of quotients": (
        13,
        [
            N("Div", ["f", "g"], ["q"]),
            N("Div", ["g", "f"], ["r"]),
            N("Mul", ["r", "half"], ["h"]),
            N("Sub", ["q", "h"], ["d"]),
            N("Add", ["d", "f"], ["s"]),
            N("Concat", ["s", "f", "half"], ["y"], axis=0),
        ],
    ),
    "greatest": (13, [N("Max", ["n", "m", "3"], ["y"])]),
    "least": (13, [N("Min", ["2", "n", "m"], ["y"])]),
    "remainder": (13, [N("Mod", ["n", "m"], ["y"])]),
    "remainder of a number": (13, [N("Mod", ["n", "2"], ["y"], fmod=1)]),
    "rounded up": (
        13,
        [N("Mul", ["f", "half"], ["h"]), N("Ceil", ["h"], ["c"]), N("Cast", ["c"], ["y"], to=7)],
    ),
    "sum of parts": (
        13,
        [
            N("Mul", ["f", "half"], ["h"]),
            N("Mul", ["g", "quarter"], ["q"]),
            N("Add", ["h", "q"], ["s"]),
            N("Floor", ["s"], ["t"]),
            N("Cast", ["t"], ["y"], to=7),
        ],
    ),
    "root": (13, [N("Sqrt", ["f"], ["r"]), N("Cast", ["r"], ["y"], to=7)]),
    "greater": (13, [N("Greater", ["n", "m"], ["y"])]),
    "certainly greater": (13, [N("Add", ["n", "1"], ["p"]), N("Greater", ["p", "n"], ["y"])]),
    "certainly not": (13, [N("Less", ["n", "0"], ["y"])]),
    "the same": (13, [N("Equal", ["n", "n"], ["y"])]),
    "another": (13, [N("Add", ["n", "1"], ["p"]), N("Equal", ["p", "n"], ["y"])]),
    "either": (13, [N("Equal", ["n", "n"], ["e"]), N("Or", ["e", "flag"], ["y"])]),
    "a truth": (13, [N("Cast", ["n"], ["y"], to=9)]),
    "flat": (13, [N("Flatten", ["shape"], ["y"], axis=0)]),
    "expanded": (13, [N("Expand", ["n", "3"], ["y"])]),
    "tiled": (13, [N("Tile", ["shape", "2"], ["y"])]),
    "range": (13, [N("Squeeze", ["n", "0"], ["s"]), N("Range", ["zero", "s", "one"], ["y"])]),
    "range of floats": (
        13,
        [
            N("Squeeze", ["f", "0"], ["s"]),
            N("Cast", ["one"], ["o"], to=1),
            N("Range", ["float", "s", "o"], ["y"]),
        ],
    ),
    "part": (9, [N("Slice", ["shape"], ["y"], starts=[1], ends=[3])]),
    "part along an axis": (9, [N("Slice", ["shape"], ["y"], starts=[0], ends=[2], axes=[0])]),
    "product": (18, [N("ReduceProd", ["shape"], ["y"], keepdims=0)]),
    "product of no axes": (
        18,
        [N("ReduceProd", ["shape", "empty"], ["y"], noop_with_empty_axes=1)],
    ),
    "sum along an axis": (
        13,
        [N("Unsqueeze", ["shape", "0"], ["u"]), N("ReduceSum", ["u", "1"], ["y"])],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_computed_as_by_onnx_runtime(name: str) -> None:
    opset, steps = CASES[name]
    nodes = [*SIZES, *steps]
    used = {operand for node in nodes for operand in node.input}
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m", 4])
    constants = {name: value for name, value in CONSTANTS.items() if name in used}
    proto = model(nodes, [x], "y", constants, opset=opset)
    session = ort.InferenceSession(proto.SerializeToString())
    mod = from_onnx(proto)
    for target in ("native", "numpy"):
        executable = relaxpy.compile(mod, target)
        for n, m in ((5, 3), (2, 6), (7, 1)):
            x = np.zeros((n, m, 4), np.float32)
            [expected] = session.run(None, {"x": x})
            found = np.asarray(executable["main"](x))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
