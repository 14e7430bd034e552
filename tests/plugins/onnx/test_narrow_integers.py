"""Integers of less than a byte: they saturate, whichever way their zero point takes.

The oracle is ONNX's formula of quantisation in NumPy.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import model
from tests.rows import whole_tables

#: The types: the opset that has them, the least and the greatest integer.
KINDS = {"int4": (21, -8, 7), "uint4": (21, 0, 15), "int2": (25, -2, 1), "uint2": (25, 0, 3)}
FORMS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "tensor": ((), {}),
    "axis": ((9,), {"axis": 0}),
    "blocks": ((9, 3), {"axis": 1, "block_size": 3}),
}
X = np.arange(-40, 41).reshape(9, 9).astype("float32")
node = helper.make_node


def body(name: str, nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """A graph of an attribute; types are not stated."""
    values = [[onnx.ValueInfoProto(name=n) for n in names] for names in (inputs, outputs)]
    return helper.make_graph(list(nodes), name, *values)


def ways(kind: str) -> dict[str, list[Any]]:
    """Nodes that define the zero point `z`, which is 1 everywhere."""
    code = int(TensorProto.DataType.Value(kind.upper()))
    one = numpy_helper.from_array(np.ones(1, kind), "one")
    then = body("then", [node("Identity", ["z0"], ["a"])], [], ["a"])
    otherwise = body("otherwise", [node("Transpose", ["z0"], ["b"])], [], ["b"])
    loop = body(
        "loop",
        [node("Identity", ["c"], ["d"]), *(node("Identity", ["s"], [n]) for n in ("t", "row"))],
        ["i", "c", "s"],
        ["d", "t", "row"],
    )
    found = {
        "initialiser": [node("Identity", ["z0"], ["z"])],
        "shape": [node("Reshape", ["z0", "sizes"], ["z"])],
        "fill": [node("ConstantOfShape", ["sizes"], ["z"], value=one)],
        "cast": [node("Cast", ["many"], ["z"], to=code)],
        "branch": [node("If", ["yes"], ["z"], then_branch=then, else_branch=otherwise)],
    }
    for count in ("few", "long"):
        ends = [node("Loop", [count, "true", "z0"], ["z", "rows"], body=loop)]
        found[f"{count} iterations"] = ends
        rows = [node("Loop", [count, "true", "z0"], ["end", "rows"], body=loop)]
        like = [node("CastLike", ["many", "rows"], ["z"])]
        found[f"rows of {count} iterations"] = [*rows, *like]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_numbers_saturate(kind: str) -> None:
    """Each way to define the zero point, with every other datatype."""
    for k, (way, nodes) in enumerate(ways(kind).items()):
        if whole_tables() or (k + list(KINDS).index(kind)) % 2:
            form = list(FORMS.values())[k % len(FORMS)]
            require_saturated(kind, way, nodes, *form, are_parameters=k % 4 < 2)


def require_saturated(
    kind: str,
    way: str,
    nodes: Sequence[Any],
    shape: tuple[int, ...],
    attributes: dict[str, int],
    *,
    are_parameters: bool,
) -> None:
    opset, low, high = KINDS[kind]
    scale = np.resize([0.5, 1, 2], shape).astype("f4")
    constants = {
        "z0": np.ones(shape, kind),
        "s": scale,
        "sizes": np.array(shape, "int64"),
        "many": np.full(shape, 17),
        "true": np.array(True),
        "few": np.array(2),
        "long": np.array(50),
    }
    quantized = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        node("Transpose", ["q"], ["r"], perm=[1, 0]),
        node("CastLike", ["x", "r"], ["w"]),
        node("Cast", ["w"], ["v"], to=1),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    inputs = [("x", TensorProto.FLOAT, ["n", "m"]), ("yes", TensorProto.BOOL, [])]
    values = starmap(helper.make_tensor_value_info, inputs)
    proto = model([*nodes, *quantized], values, "vy", constants, opset=opset)
    mod = from_onnx(proto, keep_params_in_input=are_parameters)
    params = mod["main"].attrs["params"] if are_parameters else ()
    found = relaxpy.compile(mod, target="numpy")["main"](X, np.array(True), *params)
    whole = scale
    if shape:
        whole = np.repeat(scale, 3, 1) if "block_size" in attributes else scale[:, None]
    rounded = np.clip(np.rint(X / whole) + 1, low, high)
    wrapped = (X - low) % (high - low + 1) + low
    for a, b in zip(found, (wrapped, (rounded - 1) * whole), strict=True):
        np.testing.assert_array_equal(a, b, way)
