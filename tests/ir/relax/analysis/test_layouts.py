"""Layouts of blocks and buffers that go with layouts of outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te, topi
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import reduce
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.script import from_source
from relaxpy.tvm.relax.kernel_layouts import suggest_layout_transforms

Map = Callable[..., object]


def suggested(func: PrimFunc, *transforms: Map) -> dict[str, dict[str, IndexMap]]:
    """Per block by its name the maps of itself, as "block", and of buffers by their names."""
    found = suggest_layout_transforms(func, list(transforms))
    return {
        block.name_hint: {
            "block" if isinstance(key, Block) else key.name: index_map
            for key, index_map in maps.items()
        }
        for block, maps in found.items()
    }


def check(found: dict[str, IndexMap], expected: dict[str, Map]) -> None:
    assert set(found) == set(expected)
    for name, function in expected.items():
        ndim = len(found[name].initial_indices)
        assert found[name].is_equivalent_to(IndexMap.from_func(function, ndim)), name


def channels_last(n: int, c: int, h: int, w: int) -> tuple[int, ...]:
    return n, h, w, c


def blocked(n: int, c: int, h: int, w: int) -> tuple[int, ...]:
    return n, c // 4, h, w, c % 4


@pytest.mark.parametrize("layout", [channels_last, blocked])
def test_elements_are_computed_and_read_as_they_are_laid_out(layout: Map) -> None:
    a, b = te.placeholder((2, 8, 3, 5), name="A"), te.placeholder((8, 1, 1), name="B")
    func = create_prim_func([a, b, topi.nn.relu(topi.add(a, b))])
    found = suggested(func, layout)
    row: Map = (
        (lambda c, h, w: (c,)) if layout is channels_last else lambda c, h, w: (c // 4, c % 4)
    )
    check(found["T_add"], dict.fromkeys(("block", "A", "T_add"), layout) | {"B": row})
    check(found["compute"], dict.fromkeys(("block", "compute"), layout))


def test_reduced_axes_stay_in_their_places() -> None:
    a = te.placeholder((6, 8, 3, 5), name="A")
    func = create_prim_func([a, topi.sum(a, axis=(1, 3))])
    found = suggested(func, lambda n, h: (h, n // 2, n % 2))
    [(_, maps)] = found.items()
    assert [str(i) for i in maps["block"].map_indices([10, 1, 20, 30])] == [
        "1",
        "5",
        "20",
        "30",
        "0",
    ]
    check({"A": maps["A"]}, {"A": lambda n, c, h, w: (h, n // 2, c, w, n % 2)})


@pytest.mark.parametrize(
    ("read", "layout", "follows"),
    [
        (lambda j, k: j * 2 + k, lambda i, j: (j, i), True),
        (lambda j, k: j * 2 + 1, lambda i, j: (j, i // 2, i % 2), True),
        (lambda j, k: j + 3, lambda i, j: (i // 2, j, i % 2), True),
        (lambda j, k: j * 2 + k, lambda i, j: (j // 2, i, j % 2), False),
        (lambda j, k: j * j, lambda i, j: (j, i), False),
    ],
)
def test_windows_stay_whole(read: Callable[..., Any], layout: Map, follows: bool) -> None:
    a, k = te.placeholder((4, 9), name="A"), te.reduce_axis((0, 2), "k")
    func = create_prim_func([a, te.compute((4, 4), lambda i, j: reduce.max(a[i, read(j, k)], k))])
    [(_, maps)] = suggested(func, layout).items()
    assert ("A" in maps) == follows
    if follows:
        check({"A": maps["A"]}, {"A": layout})


def test_a_buffer_is_laid_out_as_it_is_read() -> None:
    a = te.placeholder((2, 6), name="A")
    func = create_prim_func([a, topi.transpose(a, (1, 0))])
    found = suggested(func, lambda i, j: (i // 3, j, i % 3))
    check(found["T_transpose"], {
        "block": lambda i, j: (i // 3, j, i % 3),
        "T_transpose": lambda i, j: (i // 3, j, i % 3),
        "A": lambda j, i: (i // 3, j, i % 3),
    })  # fmt: skip


def test_maps_keep_every_element() -> None:
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6,), name="B")
    func = create_prim_func([a, b, topi.add(a, b)])
    maps = suggested(func, lambda i, j: (j // 2, i, j % 2))["T_add"]
    x, y = np.arange(24).reshape(4, 6), np.arange(6) * 100
    moved = maps["A"].map_ndarray(x) + maps["B"].map_ndarray(y)[:, None]
    np.testing.assert_array_equal(moved, maps["T_add"].map_ndarray(x + y))


def test_what_mixes_two_axes_leaves_alone_what_has_one_of_them() -> None:
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6,), name="B")
    func = create_prim_func([a, b, topi.add(a, b)])
    found = suggested(func, lambda i, j: (i * 6 + j,))
    assert set(found["T_add"]) == {"block", "A", "T_add"}


def test_a_buffer_that_two_blocks_read_differently_stays_as_it_is() -> None:
    a = te.placeholder((4, 4), name="A")
    t = topi.sign(a)
    func = create_prim_func([a, topi.negative(t), topi.transpose(t)])
    found = suggested(func, lambda i, j: (j, i), lambda i, j: (j, i))
    assert {name: set(maps) for name, maps in found.items()} == {
        "compute": {"block", "compute"},
        "T_transpose": {"block", "T_transpose"},
    }


def test_a_layout_that_was_given_is_not_suggested_otherwise() -> None:
    a = te.placeholder((4, 4), name="A")
    t = topi.sign(a)
    func = create_prim_func([a, t, topi.negative(t)])
    found = suggested(func, lambda i, j: (j, i), lambda i, j: (i // 2, j, i % 2))
    assert {name: set(maps) for name, maps in found.items()} == {
        "T_sign": {"block", "A", "T_sign"},
        "compute": {"block", "compute"},
    }
    found = suggested(func, lambda i, j: (j, i), lambda i, j: (j, i))
    assert set(found["compute"]) == {"block", "compute"}  # the other one is at its first block


@pytest.mark.parametrize(
    ("shape", "read", "layout", "kept"),
    [
        ((1, 4), lambda a, i: a[0, i], lambda i: (i // 2, i % 2), True),
        ((3, 4), lambda a, i: a[0, i], lambda i: (i // 2, i % 2), False),
        ((4,), lambda a, i: a[i], lambda i: (i % 4 // 2, i % 2), True),
        ((8,), lambda a, i: a[i], lambda i: (i % 4 // 2, i % 2), False),
    ],
)
def test_what_no_block_reads_is_kept(shape, read, layout, kept) -> None:
    a = te.placeholder(shape, name="A")
    found = suggested(create_prim_func([a, te.compute((4,), lambda i: read(a, i))]), layout)
    assert ("A" in found["compute"]) == kept


@pytest.mark.parametrize("layout", [lambda i, j: (i + j,), lambda i, j: (i // 2, j)])
def test_a_map_that_loses_elements_is_not_followed(layout: Map) -> None:
    a = te.placeholder((4, 4), name="A")
    assert suggested(create_prim_func([a, topi.exp(a)]), layout) == {}


def test_blocks_that_write_elsewhere_are_left_alone() -> None:
    func = from_source("""
@T.prim_func
def f(A: T.Buffer((4,)), B: T.Buffer((8,))):
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            B[v * 2] = A[v]
""")
    assert isinstance(func, PrimFunc)
    assert suggested(func, lambda i: (i // 2, i % 2)) == {}


@pytest.mark.parametrize(
    ("func", "transforms", "message"),
    [
        (3, [], "expected a PrimFunc, found int"),
        (None, 3, "transforms are a list of at most 2 maps"),
        (None, [lambda i: (i,)] * 3, "transforms are a list of at most 2 maps"),
        (None, [3], "an index map is a function, found 3"),
        (None, [lambda i, j: (i, j)], "the function takes 2 indices"),
        (None, [IndexMap.from_func(lambda i, j: (j, i))], "has 1 index, the map takes 2"),
    ],
)
def test_what_is_not_a_map_of_a_buffer_is_refused(func, transforms, message) -> None:
    a = te.placeholder((4,), name="A")
    made = create_prim_func([a, topi.exp(a)]) if func is None else func
    with pytest.raises(MisuseError, match=message):
        suggest_layout_transforms(made, transforms)  # type: ignore[arg-type]
