"""Kernels that are written as text: targets compute the bits of the reference evaluator."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops import decision_trees, regions, selection
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import TensorStructInfo, Var
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.text import T, kernel_text, variable, written
from relaxpy.script import from_source
from tests.ir.ops.cases.decision_trees import table

RNG = np.random.default_rng(3)
ROWS = RNG.integers(-3, 4, (3, 2, 40)).astype("float32")
ROWS[RNG.random(ROWS.shape) < 0.2] = np.nan
ROWS[RNG.random(ROWS.shape) < 0.2] = -0.0
IMAGES = RNG.normal(size=(2, 3, 7, 6)).astype("float32")
BORDERS = np.sort(RNG.uniform(-3, 20, (5, 2, 2)), 1).reshape(5, 4)
ROIS = np.concatenate([RNG.integers(0, 2, (5, 1)), BORDERS], 1).astype("float32")
GRADIENTS = RNG.normal(size=(5, 3, 2, 3)).astype("float32")
BOXES = np.sort(RNG.uniform(0, 3, (1, 30, 2, 2)), 2).reshape(1, 30, 4).astype("float32")
SCORES = (RNG.integers(0, 9, (1, 2, 30)) / 8).astype("float32")
LIMITS = [np.array(x, d) for x, d in ((5, "int64"), (0.4, "float32"), (0.2, "float32"))]
DETECTED = np.concatenate([SCORES[0, :, :, None].reshape(1, 30, 2), BOXES], 2)
COUNTED = [DETECTED, np.array([25], "int32"), np.arange(30, dtype="int32")[None]]
SUPPRESSION = {
    "max_output_size": -1,
    "iou_threshold": 0.3,
    "force_suppress": True,
    "top_k": -1,
    "coord_start": 2,
    "score_index": 1,
    "id_index": 0,
    "return_indices": False,
    "invalid_to_bottom": True,
    "soft_nms_sigma": 0.0,
    "score_threshold": 0.0,
}


@kernel_text
def _square(x: Any, change: int) -> Any:
    """A text that is an expression."""
    y = x + change
    return y * y


@kernel_text
def _fill_with_squares(x: Any, out: Any) -> None:
    for i in T.serial(x.shape[0]):
        total = variable(_square(x[i], 1))
        if x[i] > 0:
            total[0] += _square(x[i], 2)
        out[i] = total[0] - _square(_square(x[i], 0), 3)


def squares(x: Tensor) -> Any:
    return written("squares", {"out": (x.shape, "float32")}, {"x": x}, _fill_with_squares)[0]


#: The kernel of these arrays, and its other arguments.
KERNELS: dict[str, tuple[Callable[..., Any], list[Any], tuple[Any, ...], dict[str, Any]]] = {
    "all": (selection.selected, [ROWS], (4, 2), {"largest": True, "dtype": "int64"}),
    "groups": (selection.selected, [ROWS.reshape(1, 240)], (2, 1),
               {"largest": False, "dtype": "int32"}),
    "medians": (selection.ranked, [ROWS], (None, (0, 2), ("values", "indices"), True), {}),
    "ranks": (selection.ranked, [ROWS, np.array(7)], ((2,), ("indices",), True), {}),
    "few boxes": (selection.suppressed_by_class, [BOXES, SCORES, *LIMITS], (),
                  {"by_image": False, "rows_per_class": None}),
    "many boxes": (selection.suppressed_by_class, [BOXES, SCORES, *LIMITS], (),
                   {"by_image": True, "rows_per_class": 3}),
    "means": (regions.averaged, [IMAGES, ROIS], (0.5, (2, 3), -1), {"least": 1.0}),
    "values": (regions.averaged, [IMAGES, ROIS], (0.5, (2, 3), 2), {"greatest": "values"}),
    "gradients": (regions.averaged_gradients, [GRADIENTS, IMAGES, ROIS], (0.5, 2),
                  {"least": 1.0, "greatest": False}),
    "greatest": (regions.averaged_gradients, [GRADIENTS, IMAGES, ROIS], (0.5, 0),
                 {"least": None, "greatest": True}),
    "maxima": (regions.maxima, [IMAGES, ROIS], (0.5, 2, 3), {}),
    "shallow trees": (decision_trees.walked, [*table("float64", 9, 3)], (3,), {}),
    "deep trees": (decision_trees.walked, [*table("float32", 10, 14)], (14,), {}),
    "returned": (squares, [ROWS.reshape(240)], (), {}),
    "suppressed": (regions.suppressed, COUNTED, (), SUPPRESSION),
}  # fmt: skip


def kernel_of(name: str) -> IRModule:
    function, arrays, args, options = KERNELS[name]
    params = [Var(f"x{k}", TensorStructInfo(x.shape, str(x.dtype))) for k, x in enumerate(arrays)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit_te(function, *params, *args, **options))
    return builder.get()


def bits(module: IRModule, name: str, target: str) -> list[bytes]:
    found = compile(module, target)["main"](*(x.copy() for x in KERNELS[name][1]))
    parts = found if isinstance(found, (tuple, list)) else [found]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.parametrize("name", KERNELS)
def test_targets_compute_the_bits_of_the_text_that_is_printed(name: str) -> None:
    module = kernel_of(name)
    expected = bits(from_source(module.script()), name, "reference")
    for target in ("numpy", "native"):
        assert bits(module, name, target) == expected
