"""Operators on sizes, positions and limits that only the program knows, and on odd attributes."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError, RuntimeCheckError
from relaxpy.ir import ops as op
from tests.ir.ops.test_rules import M, N, derive
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module

PROGRAMS = module("""
def reflect(x: f32[n, m]):
    return R.nn.pad(x, [1, 2, 3, 0], pad_mode="reflect")

def shuffle(x: f32[n, 4, h, w]):
    return R.nn.pixel_shuffle(x, 2)

def channels(x: f32[c, 2, 3]):
    return R.nn.pixel_shuffle(x, 2)

def turn(x: f32[n, 1, h, w], maps: f32[n, 2, 3]):
    places = R.image.affine_grid(maps, (h, w))
    return R.image.grid_sample(x, places, align_corners=True)

def identity(x: f32[n, 3]):
    n = x.shape[0]
    return R.matmul(R.eye(n, n), x)

def banded(x: f32[n, n], k: R.Prim("int64")):
    return R.tril(R.triu(x, -1), k)

def put(x: f32[n], i: i64[k], v: f32[k]):
    return R.index_put(x, (i,), v, accumulate=True)

def suppress(boxes: f32[b, n, 4], scores: f32[b, c, n], most: R.Tensor("int64")):
    return R.vision.all_class_non_max_suppression(
        boxes, scores, most, R.const(0.5, "float32"), R.const(0.0, "float32")
    )

def cut(x: R.Tensor(ndim=2), b: R.Tensor(ndim=1), e: R.Tensor(ndim=1), s: R.Tensor(ndim=1)):
    return R.dynamic_strided_slice(x, b, e, s)

def part(x: f32[n, 2], first: R.Prim(value="i"), last: R.Prim(value="j")) -> R.Tensor(
    dtype="float32", ndim=2
):
    return R.strided_slice(x, axes=[0], begin=[i], end=[j])
""")


@pytest.fixture(scope="module", params=["numpy", "reference"])
def run(request: pytest.FixtureRequest) -> Any:
    return relaxpy.compile(PROGRAMS, request.param)


def counted(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


def test_padding_and_shuffling_of_pixels(run: Any) -> None:
    x = counted(4, 5)
    expected = np.pad(x, ((1, 2), (3, 0)), mode="reflect")
    np.testing.assert_array_equal(run["reflect"](x), expected)
    for name, shape in (("shuffle", (2, 4, 3, 5)), ("channels", (8, 2, 3))):
        image = counted(*shape)
        *lead, c, h, w = shape
        k = len(lead)
        order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
        blocks = image.reshape(*lead, c // 4, 2, 2, h, w).transpose(order)
        expected = blocks.reshape(*lead, c // 4, 2 * h, 2 * w)
        np.testing.assert_array_equal(run[name](image), expected)
    with pytest.raises(RelaxpyError):
        run["reflect"](np.zeros((4, 3), "float32"))
    with pytest.raises(RelaxpyError, match="multiple of upscale_factor"):
        run["channels"](np.zeros((6, 2, 3), "float32"))


def test_an_image_turned_by_a_right_angle(run: Any) -> None:
    x, maps = counted(1, 1, 3, 3), np.array([[[0, 1, 0], [-1, 0, 0]]], "float32")
    np.testing.assert_allclose(run["turn"](x, maps)[0, 0], np.rot90(x[0, 0], -1), atol=1e-6)


def test_sizes_and_diagonals(run: Any) -> None:
    x, square = counted(4, 3), counted(4, 4) + 1
    np.testing.assert_array_equal(run["identity"](x), x)
    np.testing.assert_array_equal(run["banded"](square, 1), np.tril(np.triu(square, -1), 1))


def test_an_index_outside_is_an_error_and_nothing_is_changed(run: Any) -> None:
    x, v = np.zeros(4, "float32"), np.ones(3, "float32")
    np.testing.assert_array_equal(run["put"](x, np.array([0, -1, 0]), v), [2, 0, 0, 1])
    for outside in (4, -5):
        with pytest.raises((RuntimeCheckError, IndexError), match="index"):
            run["put"](x, np.array([0, outside, 1]), v)
        assert not x.any()


def test_limits_of_boxes_that_are_tensors(run: Any) -> None:
    boxes = np.array([[[0, 0, 1, 1], [1, 1, 0, 0.1], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0.5, np.nan, 0.9]]], "float32")
    for most in (np.array(2), np.array([2])):
        indices, count = run["suppress"](boxes, scores, most)
        np.testing.assert_array_equal(indices, [[0, 0, 2], [0, 0, 0], [-1, -1, -1]])
        np.testing.assert_array_equal(count, [2])
    message = "max_output_boxes_per_class is one number, found 2"
    with pytest.raises(RuntimeCheckError, match=message):
        run["suppress"](boxes, scores, np.array([2, 2]))


def test_bounds_in_tensors_are_checked_when_they_arrive(run: Any) -> None:
    x, cut = np.arange(12.0).reshape(3, 4), run["cut"]
    zero, one, two = (np.full(2, k, "int64") for k in (0, 1, 2))
    found = cut(x, zero, two, one)
    np.testing.assert_array_equal(found, x[:2, :2])
    assert not np.shares_memory(found, x)
    with pytest.raises(RuntimeCheckError, match=r"strides are other than 0, found \[0, 0\]"):
        cut(x, zero, two, zero)
    with pytest.raises(RuntimeCheckError, match=r"end has one element for each axis"):
        cut(x, zero, two[:1], one)


def test_symbolic_bounds_below_zero_count_from_the_end(run: Any) -> None:
    x = counted(5, 2)
    for first, last in ((1, 3), (-2, 5), (0, -1), (-9, 9), (3, 1)):
        np.testing.assert_array_equal(run["part"](x, first, last), x[first:last])


def test_symbolic_blocks_are_compared_with_those_of_the_layout_when_values_arrive() -> None:
    pool = partial(op.nn.max_pool2d, layout="NCHW16c", out_layout="NHWC")
    run = relaxpy.compile(returning(pool, tensor(1, 2, 3, 3, M)))["main"]
    values = np.arange(1 * 2 * 3 * 3 * 16, dtype="float32").reshape(1, 2, 3, 3, 16)
    whole = values.transpose(0, 2, 3, 1, 4).reshape(1, 3, 3, 32)
    np.testing.assert_array_equal(run(values), whole)
    with pytest.raises(RuntimeCheckError, match="blocks in NCHW16c have 16"):
        run(values[..., :4])


def test_targets_of_a_loss_may_be_truths() -> None:
    scores = np.array([[1, -2, 3], [4, 5, -6]], "float32")
    loss = returning(
        partial(op.nn.nll_loss, reduction="none"), tensor(2, 3), tensor(2, dtype="bool")
    )
    result = relaxpy.compile(loss)["main"](scores, np.array([True, False]))
    np.testing.assert_array_equal(result, [2, -4])


X, IMAGE, GRID = tensor(2, 3), tensor(N, 3, 5, 6), tensor(N, 2, M, 7)


@pytest.mark.parametrize(
    ("make", "sinfos", "message"),
    [
        (lambda x: op.nn.pad(x, (1, 1), "edge"), [tensor(2)], r"pad_mode is .*, found 'edge'"),
        (lambda x: op.meshgrid((x,), "yx"), [X], "indexing is 'ij' or 'xy', found 'yx'"),
        (lambda x: op.tile(x, "2"), [X], r"repeats is int.*, found '2'"),
        *(
            (
                lambda x, g, name=name: op.image.grid_sample(x, g, **{name: "cubic"}),
                [IMAGE, GRID],
                rf"{name} is '.*' or .*, found 'cubic'",
            )
            for name in ("method", "padding_mode", "layout")
        ),
    ],
)
def test_an_attribute_has_one_of_its_values(make, sinfos, message) -> None:
    with pytest.raises(MisuseError, match=message):
        derive(make, tuple(sinfos))


def test_functions_of_tensors_refuse_other_attributes_and_ranks() -> None:
    image = relaxpy.topi.image
    x, places, maps, pixels = (
        relaxpy.te.placeholder(dims, "float32")
        for dims in ((1, 2, 2), (1, 2, 3, 3), (1, 2, 3), (1, 1, 2, 2))
    )
    for name in ("method", "padding_mode", "layout"):
        with pytest.raises(MisuseError, match=rf"{name} is one of .*, found 'cubic'"):
            image.grid_sample(pixels, places, **{name: "cubic"})
    with pytest.raises(MisuseError, match=r"the axes of 'NCHW', found \(1, 2, 2\) and \(1, 2, 3"):
        image.grid_sample(x, places)
    with pytest.raises(MisuseError, match=r"maps of rank 3 and 2 or 3 sizes, found \(1, 2, 3, 3\)"):
        image.affine_grid(places, [2, 3])
    with pytest.raises(MisuseError, match=r"and 2 or 3 sizes, found \(1, 2, 3\) and \[2\]"):
        image.affine_grid(maps, [2])
    for layout in ("NCHW", "NCW"):
        with pytest.raises(MisuseError, match=rf"data \(1, 2, 2\) has .* H, W, found '{layout}'"):
            image.resize2d(x, [0.0] * 4, [3, 3], layout=layout)
    with pytest.raises(MisuseError, match=r"expected 2 sizes and a region of 4 numbers, found"):
        image.resize2d(places, [0.0] * 4, [3])
