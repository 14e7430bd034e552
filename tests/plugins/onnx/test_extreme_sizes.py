"""Sizes at the ends of int64, and products of sizes beyond them, in each place that has sizes."""

import math
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import relaxpy  # noqa: E402
from relaxpy.errors import RelaxpyError  # noqa: E402
from relaxpy.relax.frontend.onnx import from_onnx  # noqa: E402

MOST = (1 << 63) - 1
SIZES = [
    [1 << 62, 0],
    [0, MOST],
    [1 << 62, 4],
    [1 << 32, 1 << 32],
    [MOST],
    [-(1 << 63)],
    [-1, 0],
    [1 << 31, 1 << 31, 2],
    [3, -5],
]
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
MEMORY = 4 << 30
"""The bytes that a process may use."""


def models(sizes: list[int]) -> Iterator[tuple[str, Any]]:
    """Models that have these sizes in one place each."""
    rank, x = len(sizes), helper.make_tensor("x", FLOAT, [1] * len(sizes), [1.0])
    given = helper.make_tensor("s", INT64, [rank], sizes)
    one = helper.make_tensor("s", INT64, [], [sizes[0]])

    def made(name: str, nodes: Any, constants: Any = (), inputs: Any = ()) -> tuple[str, Any]:
        result = [helper.make_tensor_value_info("y", FLOAT, None)]
        graph = helper.make_graph(nodes, "g", list(inputs), result, list(constants))
        opsets = [helper.make_opsetid("", 18)]
        return name, helper.make_model(graph, opset_imports=opsets, ir_version=8)

    node = helper.make_node
    raw = TensorProto(dims=sizes, data_type=FLOAT, name="x", raw_data=b"")
    yield made("initialiser", [node("Neg", ["x"], ["y"])], [raw])
    try:
        declared = helper.make_tensor_value_info("x", FLOAT, sizes)
    except ValueError:
        declared = None
    if declared is not None:
        for name, nodes in {
            "input": [node("Neg", ["x"], ["y"])],
            "flattened input": [node("Reshape", ["x", "whole"], ["y"])],
            "joined input": [node("Concat", ["x", "x"], ["y"], axis=0)],
        }.items():
            whole = helper.make_tensor("whole", INT64, [1], [-1])
            yield made(name, nodes, [whole], [declared])
    for op in ("Expand", "Tile", "Reshape"):
        yield made(op, [node(op, ["x", "s"], ["y"])], [x, given])
    fill = node("ConstantOfShape", ["s"], ["c"])
    for op, options in {"Identity": {}, "ReduceSum": {"keepdims": 0}, "Transpose": {}}.items():
        yield made(f"fill, {op}", [fill, node(op, ["c"], ["y"], **options)], [given])
    pads = helper.make_tensor("p", INT64, [2 * rank], [0] * rank + sizes)
    yield made("Pad", [node("Pad", ["x", "p"], ["y"])], [x, pads])
    if rank == 2:
        image = helper.make_tensor("x", FLOAT, [1, 1, 1, 1], [1.0])
        whole = helper.make_tensor("s", INT64, [4], [1, 1, *sizes])
        yield made("Resize", [node("Resize", ["x", "", "", "s"], ["y"])], [image, whole])
    yield made(
        "OneHot",
        [node("OneHot", ["i", "s", "v"], ["y"])],
        [
            helper.make_tensor("i", INT64, [1], [0]),
            one,
            helper.make_tensor("v", FLOAT, [2], [0, 1]),
        ],
    )
    yield made(
        "Range",
        [node("Range", ["z", "s", "o"], ["r"]), node("Cast", ["r"], ["y"], to=FLOAT)],
        [one, helper.make_tensor("z", INT64, [], [0]), helper.make_tensor("o", INT64, [], [1])],
    )
    yield made("RandomNormal", [node("RandomNormal", [], ["y"], shape=sizes)])
    yield made(
        "Split", [node("Split", ["x", "s"], [f"y{k}" for k in range(rank - 1)] + ["y"])], [x, given]
    )
    ends = helper.make_tensor("b", INT64, [1], [0])
    last = helper.make_tensor("s", INT64, [1], [sizes[0]])
    yield made("Slice", [node("Slice", ["x", "b", "s"], ["y"])], [x, ends, last])
    yield made("TopK", [node("TopK", ["x", "s"], ["y", "i"])], [x, last])
    yield made(
        "Trilu",
        [node("Trilu", ["x", "s"], ["y"])],
        [helper.make_tensor("x", FLOAT, [2, 2], [1] * 4), one],
    )


def attempt() -> None:
    """Import, compile and call all models; anything but an error of ours is raised.

    A sum of very many equal numbers needs no memory, and would take years.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rows = ((each, *row) for each in SIZES for row in models(each))
    for sizes, name, model in rows:
        print(name, sizes, flush=True)
        with suppress(RelaxpyError):
            module = from_onnx(model)
            is_long = name == "fill, ReduceSum" and math.prod(sizes) > 1 << 40
            for target in ("numpy", "native"):
                executable = relaxpy.compile(module, target)
                if not module["main"].params and not (is_long and target == "native"):
                    with suppress(RelaxpyError):
                        executable["main"]()


@pytest.mark.skipif(sys.platform == "win32", reason="memory is limited by resource")
def test_extreme_sizes_are_refused_or_used() -> None:
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout[-100:] + done.stderr
    assert done.stdout.count("\n") >= 12 * len(SIZES)


if __name__ == "__main__":
    attempt()
