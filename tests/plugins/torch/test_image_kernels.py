"""The work of the kernels of images: iterations of sums, and elements that are transposed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from relaxpy import relax
from relaxpy.ir.core.traverse import occurrences, walk
from relaxpy.ir.tir.iteration import IterVarKind
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block

torch: Any = pytest.importorskip("torch")
from relaxpy.relax.frontend.torch import from_exported_program  # noqa: E402

F = torch.nn.functional


class Module(torch.nn.Module):  # type: ignore[misc]
    """A module whose forward function is given."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def imported(function: Callable[[Any], Any], *shape: int) -> Any:
    return from_exported_program(torch.export.export(Module(function), (torch.rand(shape),)))


def reductions(mod: Any, name: str) -> list[list[tuple[bool, int]]]:
    """Of each block of a kernel that reduces its axes, the extents, and if they are reduced."""
    [func] = (f for v, f in mod.functions.items() if v.name_hint == name)
    assert isinstance(func, PrimFunc)
    axes = (
        [(v.iter_type == IterVarKind.CommReduce, int(v.dom.extent)) for v in block.iter_vars]
        for block in occurrences(func.body, Block)
    )
    return [found for found in axes if any(is_reduced for is_reduced, _ in found)]


@pytest.mark.parametrize(
    ("old", "new"), [(33, 32), (8, 3), (12, 4), (7, 3), (5, 7), (3, 9), (14, 6), (14, 12), (500, 3)]
)
def test_indices_of_maxima_are_of_as_many_elements_as_the_longest_window(
    old: int, new: int
) -> None:
    longest = max(math.ceil((k + 1) * old / new) - k * old // new for k in range(new))
    mod = imported(lambda x: F.adaptive_max_pool1d(x, new, return_indices=True), 2, 3, old)
    [axes] = reductions(mod, "adaptive_max_indices")
    assert [extent for is_reduced, extent in axes if is_reduced] == [longest]


@pytest.mark.parametrize("size", [(2, 3, 28, 20), (1, 2, 9, 7)])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 2), (4, 1)])
def test_windows_of_every_other_element_take_the_work_of_half_an_image(size, kernel) -> None:
    """Without the elements between them, which are zero."""
    batch, channels, *image = size
    count = math.prod(n - k + 1 for n, k in zip(image, kernel, strict=True))
    columns = batch, channels * math.prod(kernel), count
    both = [
        imported(
            lambda x, step=step: F.fold(
                x, [step * n for n in image], kernel, stride=step, dilation=step
            ),
            *columns,
        )
        for step in (1, 2)
    ]
    few, many = (reductions(mod, "col2im") for mod in both)
    assert many == few


@pytest.mark.parametrize(
    ("old", "new", "most"),
    [
        ((3, 3), (200, 200), 3 * 200),  # a matmul, whose rows are transposed
        ((3, 40), (200, 20), 200 * 20),
        ((40, 40), (200, 200), 40 * 200),  # sums of windows, whose columns are transposed
        ((200, 200), (40, 40), 40 * 200),
    ],
)
def test_smooth_resizes_transpose_images_while_they_are_small(old, new, most) -> None:
    mod = imported(lambda x: F.interpolate(x, new, mode="bilinear", antialias=True), 1, 1, *old)
    transposed = (
        math.prod(map(int, node.struct_info.shape))
        for node in walk(mod["main"])
        if isinstance(node, relax.Call) and getattr(node.op, "name", "") == "relax.permute_dims"
        if list(node.attrs["axes"]) == [0, 1, 3, 2]
    )
    assert max(transposed) == most
