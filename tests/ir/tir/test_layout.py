"""Layouts of data and changes between them."""

import itertools

import numpy as np
import pytest

from relaxpy import tir as T
from relaxpy.errors import MisuseError


def numbers(values: list[T.PrimExpr]) -> tuple[int, ...]:
    assert all(isinstance(v, T.IntImm) for v in values)
    return tuple(v.value for v in values if isinstance(v, T.IntImm))


def test_axes_are_letters_and_blocks_numbers() -> None:
    found = T.layout("NCHW16c")
    assert isinstance(found, T.Layout)
    assert (len(found), list(found), found.name, str(found)) == (
        5,
        ["N", "C", "H", "W", "c"],
        "NCHW16c",
        "NCHW16c",
    )
    assert [found.index_of(a) for a in "NCHWcO"] == [0, 1, 2, 3, 4, -1]
    assert [found.factor_of(a) for a in "NCcO"] == [-1, 16, 16, -1]
    assert "c" in found
    assert "O" not in found
    assert (found[0], found[-1]) == ("N", "c")
    with pytest.raises(MisuseError, match="none at 5"):
        found[5]


def test_axes_run_over_integers_of_the_datatype() -> None:
    for dtype in ("int32", "int64"):
        axis = T.layout("NCHW4c", dtype).axes[-1]
        assert axis.dom is not None
        assert axis.var.dtype == axis.dom.min.dtype == axis.dom.extent.dtype == dtype
        assert axis.dom.extent is T.const(4, dtype)
    with pytest.raises(MisuseError, match="axes run over signed integers"):
        T.layout("NCHW", dtype="float32")
    with pytest.raises(MisuseError, match="a layout is named by a string, found 'NCHW', None"):
        T.layout("NCHW", dtype=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["N!", "NN", "N4c", "Nc", "4N", "N0n", "16", "NCHWc", 3])
def test_what_is_not_a_layout(name: str) -> None:
    with pytest.raises(MisuseError, match="layout"):
        T.layout(name)


@pytest.mark.parametrize(
    ("src", "dst"),
    [("NCHW", "ABCD"), ("__undef__", "NCHW"), ("NCHW", "__undef__"), ("", "NCHW"), ("", "")],
)
def test_layouts_of_other_axes_are_not_convertible(src: str, dst: str) -> None:
    assert T.bijective_layout(src, dst) is None
    with pytest.raises(MisuseError, match="does not become"):
        T.BijectiveLayout(src, dst)


def test_shapes_and_indices_of_blocks() -> None:
    change = T.bijective_layout("NCHW", "NCHW16c")
    assert isinstance(change, T.BijectiveLayout)
    assert (change.src_layout.name, change.dst_layout.name) == ("NCHW", "NCHW16c")
    assert numbers(change.forward_shape((1, 32, 7, 7))) == (1, 2, 7, 7, 16)
    assert numbers(change.backward_shape((1, 2, 7, 7, 16))) == (1, 32, 7, 7)
    assert numbers(change.forward_index([0, 18, 6, 6])) == (0, 1, 6, 6, 2)
    assert numbers(change.backward_index([0, 1, 6, 6, 2])) == (0, 18, 6, 6)
    assert numbers(change.forward_shape((1, 33, 7, 7))) == (1, 3, 7, 7, 16)
    n = T.Var("n", "int32")
    assert change.forward_shape((n, 32, 7, n))[0] is n
    with pytest.raises(MisuseError, match="4 axes, found 3"):
        change.forward_index([0, 1, 2])
    with pytest.raises(MisuseError, match="size 16, found 8"):
        change.backward_shape((1, 2, 7, 7, 8))


@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [
        ("NCHW", "NHWC", (2, 3, 4, 5)),
        ("NCHW", "NCHW2c", (2, 4, 3, 2)),
        ("NCHW4c", "NHWC2c", (1, 2, 3, 2, 4)),
        ("OIHW", "OIHW2i3o", (6, 4, 2, 1)),
        ("OIHW2i3o", "HWIO", (2, 2, 2, 1, 2, 3)),
    ],
)
def test_every_element_moves_to_a_place_of_its_own(src, dst, shape) -> None:
    change = T.BijectiveLayout(src, dst)
    there = numbers(change.forward_shape(shape))
    assert np.prod(there) == np.prod(shape)
    assert numbers(change.backward_shape(there)) == shape
    places = set()
    for index in itertools.product(*map(range, shape)):
        place = numbers(change.forward_index(index))
        assert all(0 <= p < size for p, size in zip(place, there, strict=True))
        assert numbers(change.backward_index(place)) == index
        places.add(place)
    assert len(places) == np.prod(shape)
