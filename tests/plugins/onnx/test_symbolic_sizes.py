"""Operators on images and sequences of symbolic sizes, at several sizes by one executable."""

import functools
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxpy
from relaxpy.plugins.importing.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx import runtime
from tests.plugins.onnx.runtime import agree
from tests.plugins.onnx.texts import model, one

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT = TensorProto.FLOAT
EMPTY = np.array([], np.float32)
IMAGES = ["n", 4, "h", "w"]
TWO_SIZES = [(1, 4, 9, 12), (2, 4, 8, 7)]


def rand(*shape: int) -> Array:
    """Normal numbers, the same for the same shape."""
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def check(
    op: str,
    inputs: Mapping[str, Sequence[Any]],
    feeds: Sequence[Mapping[str, Array]],
    constants: Mapping[str, Array],
    attributes: Mapping[str, Any],
    *,
    opset: int,
    outputs: Sequence[str] = ("y",),
    order: Sequence[str] = (),
) -> None:
    """Compare one node with ONNX Runtime, compiled once for all feeds."""
    arrays: dict[str, Any] = {name: feeds[0][name] for name in inputs}
    arrays |= {f"c_{name}": x for name, x in constants.items()}
    if order:
        names = [f"c_{name}" if name in constants else name for name in order]
        arrays = {name: arrays.get(name) for name in names}
    compare = functools.partial(agree, rtol=3e-4, atol=3e-5)
    runtime.check(
        one(op, arrays, attributes, outputs, inputs, opset=opset), *feeds, compare=compare
    )


def images(op: str, constants: Mapping[str, Array], opset: int, **attributes: Any) -> None:
    """`check` of an operator on images of two sizes."""
    feeds = [{"x": rand(*shape)} for shape in TWO_SIZES]
    check(op, {"x": IMAGES}, feeds, constants, attributes, opset=opset)


def filters(op: str, constants: Mapping[str, Array], w: Sequence[int], **attributes: Any) -> None:
    """`check` of a convolution whose filters have two sizes, beside the images."""
    feeds = [
        {"x": rand(*shape), "w": rand(*w, *sizes)}
        for shape, sizes in zip(TWO_SIZES, [(3, 2), (4, 3)], strict=True)
    ]
    check(op, {"x": IMAGES, "w": [*w, "a", "b"]}, feeds, constants, attributes, opset=13)


@pytest.mark.parametrize(
    ("auto_pad", "stride"),
    [("NOTSET", 2), ("SAME_UPPER", 2), ("SAME_LOWER", 3), ("SAME_LOWER", 1), ("VALID", 2)],
)
def test_padding_of_convolutions_depends_on_sizes(auto_pad: str, stride: int) -> None:
    constants = {"w": rand(6, 4, 3, 2), "b": rand(6)}
    attributes = {"auto_pad": auto_pad, "strides": [stride, stride]}
    images("Conv", constants, 13, **attributes)
    filters("Conv", {"b": rand(6)}, (6, 4), **attributes)


def test_padding_of_convolutions_of_integers_depends_on_sizes() -> None:
    attributes = {"auto_pad": "SAME_LOWER", "strides": [3, 3]}
    feeds = [{"x": np.abs(99 * rand(*shape)).astype(np.uint8)} for shape in TWO_SIZES]
    whole = {
        "w": np.abs(30 * rand(6, 4, 3, 3)).astype(np.uint8),
        "p": np.uint8(100),
        "q": np.uint8(7),
    }
    check("ConvInteger", {"x": IMAGES}, feeds, whole, attributes, opset=10)
    feeds = [{**feed, "w": whole["w"]} for feed in feeds]
    zeros = {name: whole[name] for name in "pq"}
    check("ConvInteger", {"x": IMAGES, "w": [6, 4, "a", "b"]}, feeds, zeros, attributes, opset=10)


POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 2]},
    {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [3, 3], "pads": [0, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]},
]


@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_pools(attributes: dict[str, Any]) -> None:
    images("AveragePool", {}, 22, **attributes)
    if "pads" in attributes:
        images("AveragePool", {}, 22, **attributes, count_include_pad=1)
    images(*(("MaxPool", {}, 12), ("LpPool", {}, 22))[POOLS.index(attributes) % 2], **attributes)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_last_one_of_equal_elements(op: str, axis: int) -> None:
    feeds = [{"x": np.round(rand(*shape))} for shape in ((4, 5), (1, 7), (6, 1))]
    attributes = {"axis": axis, "select_last_index": 1, "keepdims": 0}
    check(op, {"x": ["n", "m"]}, feeds, {}, attributes, opset=18)


def test_places_of_maxima() -> None:
    feeds = [{"x": rand(*shape)} for shape in TWO_SIZES]
    attributes = {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "storage_order": 1}
    check("MaxPool", {"x": IMAGES}, feeds, {}, attributes, opset=12, outputs=("y", "places"))


TRANSPOSED: list[dict[str, Any]] = [
    {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [3, 2], "auto_pad": "SAME_LOWER"},
    {"group": 2, "dilations": [2, 1]},
    {"strides": [2, 2], "output_shape": [15, 13]},
    {"strides": [2, 2], "output_shape": [14, 12], "auto_pad": "SAME_UPPER"},
]


@pytest.mark.parametrize("attributes", TRANSPOSED, ids=str)
def test_transposed_convolutions(attributes: dict[str, Any]) -> None:
    constants = {"w": rand(4, 2, 3, 3), "b": rand(2 * attributes.get("group", 1))}
    images("ConvTranspose", constants, 13, **attributes)
    if TRANSPOSED.index(attributes) % 2 == 0:
        filters("ConvTranspose", {"b": constants["b"]}, (4, 2), **attributes)


@pytest.mark.parametrize(
    ("place", "mode", "scales"),
    [
        ("half_pixel", "nearest", (0.6, 2.3)),
        ("half_pixel", "linear", (2.0, 3.0)),
        ("half_pixel", "cubic", (0.5, 1.5)),
        ("asymmetric", "nearest", (2.0, 3.0)),
        ("asymmetric", "linear", (0.5, 1.5)),
        ("pytorch_half_pixel", "nearest", (0.5, 1.5)),
        ("pytorch_half_pixel", "cubic", (0.6, 2.3)),
    ],
)
def test_resize_by_scales(place: str, mode: str, scales: tuple[float, float]) -> None:
    constants = {"roi": EMPTY, "scales": np.array([1, 1, *scales], np.float32)}
    images("Resize", constants, 13, mode=mode, coordinate_transformation_mode=place)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_to_sizes(policy: str) -> None:
    constants = {"roi": EMPTY, "scales": EMPTY, "sizes": np.array([7, 9])}
    attributes = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    images("Resize", constants, 18, **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("images", [0, 1])
def test_resize_to_sizes_that_are_computed(mode: str, images: int) -> None:
    feed = {"x": rand(images, 4, 9, 12), "sizes": np.array([images, 4, 7, 20])}
    check(
        "Resize",
        {"x": [0, 4, 9, 12] if images == 0 else IMAGES, "sizes": [4]},
        [feed],
        {"roi": EMPTY, "scales": EMPTY},
        {"mode": mode},
        opset=13,
        order=["x", "roi", "scales", "sizes"],
    )


def test_with_sizes_an_unknown_number_of_scales_is_none() -> None:
    sizes, roi = np.array([1, 4, 7, 20]), np.array([], np.float32)
    check(
        "Resize",
        {"x": IMAGES, "roi": ["r"], "scales": ["s"]},
        [{"x": rand(1, 4, 9, 12), "roi": roi, "scales": roi}],
        {"sizes": sizes},
        {"mode": "nearest"},
        opset=11,
    )


def _attention_feeds(past: int = 0) -> list[dict[str, Array]]:
    feeds = []
    for batch, queries, keys in ((1, 3, 5), (2, 1, 7)):
        feed = {
            "q": rand(batch, 4, queries, 8),
            "k": rand(batch, 2, keys, 8),
            "v": rand(batch, 2, keys, 6),
        }
        if past:
            feed |= {"m": rand(batch, 1, queries, keys + past)}
            feed |= {"pk": rand(batch, 2, past, 8), "pv": rand(batch, 2, past, 6)}
        feeds.append(feed)
    return feeds


ATTENDED = {"q": ["b", 4, "s", 8], "k": ["b", 2, "t", 8], "v": ["b", 2, "t", 6]}


@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"softcap": 2.0}], ids=str)
def test_attention_of_groups_of_heads(attributes: dict[str, Any]) -> None:
    check("Attention", ATTENDED, _attention_feeds(), {}, attributes, opset=23)


def test_attention_to_a_cache() -> None:
    inputs = {**ATTENDED, "m": ["b", 1, "s", "all"], "pk": ["b", 2, "p", 8], "pv": ["b", 2, "p", 6]}
    check("Attention", inputs, _attention_feeds(4), {}, {}, opset=23, outputs=("y", "keys", "vals"))


def test_queries_that_attend_nothing_are_zero() -> None:
    feeds = _attention_feeds()
    for feed in feeds:
        shape = (feed["q"].shape[0], 1, feed["q"].shape[2], feed["k"].shape[2])
        feed["m"] = rand(*shape) > 0
        feed["m"][0, 0, 0] = False
    check("Attention", {**ATTENDED, "m": ["b", 1, "s", "t"]}, feeds, {}, {}, opset=23)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization_has_three_results(axis: int) -> None:
    shape = (6,) if axis == -1 else (3, 6)
    outputs = ("y", "mean", "deviation")
    for count in (1, 3):
        check(
            "LayerNormalization",
            {"x": ["b", 3, 6]},
            [{"x": rand(2, 3, 6)}, {"x": rand(1, 3, 6)}],
            {"s": rand(*shape), "b": rand(*shape)},
            {"axis": axis},
            opset=17,
            outputs=outputs[:count],
        )


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_transforms(onesided: int) -> None:
    constants = {
        "step": np.array(16),
        "window": np.hanning(32).astype(np.float32),
        "length": np.array(32),
    }
    feeds = [{"x": rand(2, 160, 1)}, {"x": rand(1, 97, 1)}]
    check("STFT", {"x": ["b", "l", 1]}, feeds, constants, {"onesided": onesided}, opset=17)


@pytest.mark.parametrize("attributes", [{"onesided": 1}, {"inverse": 1}, {}], ids=str)
def test_transforms_of_symbolic_length(attributes: dict[str, int]) -> None:
    parts = 1 if "onesided" in attributes else 2
    feeds = [{"x": rand(2, 16, parts)}, {"x": rand(1, 9, parts)}]
    check("DFT", {"x": ["b", "l", parts]}, feeds, {}, {**attributes, "axis": 1}, opset=17)


@pytest.mark.parametrize("axis", ["axis", ""])
def test_a_transform_has_numbers_of_one_or_two_parts(axis: str) -> None:
    inputs = [("x", FLOAT, [1, 8, 1 << 31]), ("axis", TensorProto.INT64, [])]
    node = helper.make_node("DFT", ["x", "", axis], ["y"])
    proto = model([node], starmap(helper.make_tensor_value_info, inputs), "y", opset=20)
    with pytest.raises(NotImplementedError, match="has 1 or 2 parts"):
        from_onnx(proto)


@pytest.mark.each_choice
@pytest.mark.parametrize("points", [37, 96])
@pytest.mark.parametrize("attributes", [{"onesided": 1}, {"inverse": 1}, {}], ids=str)
def test_transforms_of_known_length(attributes: dict[str, int], points: int) -> None:
    """They are as accurate as those of NumPy; ONNX Runtime's are less so for some lengths."""
    parts = 1 if points % 2 or "onesided" in attributes else 2
    for axis, shape in ((1, [2, points, parts]), (0, [points, 2, 3, parts])):
        x = rand(*shape)
        sizes = ["b" if size == 2 and at < 2 else size for at, size in enumerate(shape)]
        proto = one("DFT", {"x": x}, {"axis": axis, **attributes}, sizes={"x": sizes}, opset=17)
        number = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
        expected = (np.fft.ifft if "inverse" in attributes else np.fft.fft)(number, axis=axis)
        if "onesided" in attributes:
            expected = np.take(expected, range(points // 2 + 1), axis)
        for target in ("native", "numpy"):
            found = relaxpy.compile(from_onnx(proto), target=target)["main"](x)
            assert found.shape == (*expected.shape, 2)
            np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-4)


@pytest.mark.each_choice
@pytest.mark.parametrize("points", [3, 100])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("attributes", [{"onesided": 1}, {"inverse": 1, "onesided": 1}], ids=str)
def test_transforms_of_other_floats(attributes: dict[str, int], dtype: str, points: int) -> None:
    """Operands that are shorter and longer than the transform, or empty, in their datatype."""
    back = "inverse" in attributes
    for length in (0, 70, 120):
        x = rand(2, length, 2 if back else 1).astype(dtype)
        operands, sizes = {"x": x, "c_n": np.array(points)}, {"x": ["b", "l", x.shape[2]]}
        proto = one("DFT", operands, attributes, sizes=sizes)
        exact = x.astype(np.float64)
        if back:
            right = np.fft.irfft(exact[..., 0] + 1j * exact[..., 1], points, 1) if length else 0
            expected = np.broadcast_to(right, (2, points))[..., None]
        else:
            spectrum = np.fft.rfft(exact[..., 0], points, 1)
            expected = np.stack([spectrum.real, spectrum.imag], -1)
        found = relaxpy.compile(from_onnx(proto))["main"](x)
        assert (found.dtype, found.shape) == (x.dtype, expected.shape)
        limit = 8 * float(ml_dtypes.finfo(dtype).eps) * (1 + abs(expected).max())
        assert abs(found.astype(np.float64) - expected).max() <= limit


@pytest.mark.each_choice
@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize("place", ["half_pixel", "output_half_pixel"])
def test_regions(place: str, sampling_ratio: int) -> None:
    rois = np.array([[1, 2, 9, 12], [0, 0, 17, 16], [3, 3, 4, 5]], np.float32)
    attributes = {
        "coordinate_transformation_mode": place,
        "sampling_ratio": sampling_ratio,
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.5,
    }
    feed = {"x": rand(2, 4, 9, 8), "rois": rois, "batches": np.array([0, 1, 1])}
    inputs: dict[str, list[Any]] = {"x": IMAGES, "rois": ["k", 4], "batches": ["k"]}
    check("RoiAlign", inputs, [feed], {}, attributes, opset=16)
    whole = np.array([[0, 1, 2, 9, 12], [1, 0, 0, 15, 15], [1, 3, 3, 4, 5]], np.float32)
    pooled = {"pooled_shape": [3, 2], "spatial_scale": 0.5}
    given = {"x": feed["x"], "rois": whole}
    check("MaxRoiPool", {"x": IMAGES, "rois": ["k", 5]}, [given], {}, pooled, opset=13)


@pytest.mark.parametrize(
    ("mode", "padding"),
    [
        ("nearest", "zeros"),
        ("bilinear", "border"),
        ("bilinear", "reflection"),
        ("bicubic", "zeros"),
    ],
)
def test_grids(mode: str, padding: str) -> None:
    feed = {"x": rand(1, 4, 5, 6), "grid": rand(1, 7, 3, 2) * 1.5}
    attributes = {"mode": mode, "padding_mode": padding}
    inputs = {"x": IMAGES, "grid": ["n", "H", "W", 2]}
    check("GridSample", inputs, [feed], {}, attributes, opset=16)


@pytest.mark.parametrize(
    ("block", "length", "attributes"),
    [
        ((2, 2), 24, {"pads": [1, 0, 1, 0]}),
        ((2, 2), 4, {"strides": [2, 2]}),
        ((3, 2), 6, {"strides": [2, 3], "pads": [1, 1, 1, 1]}),
        ((2, 2), 1, {"strides": [4, 4]}),
        ((2, 3), 4, {"strides": [2, 2], "dilations": [2, 1]}),
        ((3, 3), 25, {"pads": [1, 1, 1, 1]}),
        ((1, 3), 8, {"strides": [3, 1], "dilations": [3, 2], "pads": [0, 1, 1, 2]}),
        ((4, 5), 4, {"strides": [3, 3], "pads": [1, 2, 1, 1]}),
        ((1, 1), 9, {"strides": [2, 2]}),
    ],
)
def test_columns_are_added_to_images(block: Any, length: int, attributes: Any) -> None:
    constants = {"image": np.array([5, 5]), "block": np.array(block)}
    feeds = [{"x": rand(count, 3 * block[0] * block[1], length)} for count in (2, 1)]
    inputs = {"x": ["n", 3 * block[0] * block[1], "l"]}
    check("Col2Im", inputs, feeds, constants, attributes, opset=18)


def test_columns_that_do_not_fit() -> None:
    operands = {"x": rand(2, 9, 5), "c_image": np.array([4, 4]), "c_block": np.array([3, 3])}
    with pytest.raises(OpNotImplemented, match=r"shape \(2, 9, 5\), expected \(2, 9, 4\)"):
        from_onnx(one("Col2Im", operands, {}))
    run = relaxpy.compile(from_onnx(one("Col2Im", operands, {}, sizes={"x": ["n", "c", "l"]})))
    for shape, message in (((2, 9, 5), "dimension 2 is 5, not 4"), ((2, 8, 4), "dimension 1 is 8")):
        with pytest.raises(relaxpy.errors.MatchCastError, match=message):
            run["main"](rand(*shape))


def test_columns_of_half_precision_are_added_in_float32() -> None:
    operands = {"x": np.ones((1, 9, 36), np.float16), "c_image": [8, 8], "c_block": [3, 3]}
    operands["x"][0, 0] = 2048
    found = relaxpy.compile(from_onnx(one("Col2Im", operands, {})))["main"](operands["x"])
    assert found[0, 0, 3, 3] == 2056


def test_windows_moved_by_offsets() -> None:
    feed = {"x": rand(2, 4, 5, 6), "o": rand(2, 36, 5, 6), "m": rand(2, 18, 5, 6)}
    inputs = {"x": IMAGES, "o": ["n", 36, "H", "W"], "m": ["n", 18, "H", "W"]}
    check(
        "DeformConv",
        inputs,
        [feed],
        {"w": rand(6, 2, 3, 3), "b": rand(6)},
        {"group": 2, "offset_group": 2, "pads": [1, 1, 1, 1]},
        opset=19,
        order=["x", "w", "o", "b", "m"],
    )


@pytest.mark.parametrize("size", [1, 3])
def test_determinants(size: int) -> None:
    feeds = [{"x": rand(batch, size, size)} for batch in (1, 3)]
    check("Det", {"x": ["b", size, size]}, feeds, {}, {}, opset=11)


def _sizes_of_output(
    inputs: Mapping[str, Sequence[Any]], text: str, constants: Mapping[str, Array], opset: int = 18
) -> tuple[Any, str]:
    """The module of nodes in ONNX's textual syntax, and the shape that it infers for `y`."""
    nodes = [onnx.parser.parse_node(line.strip()) for line in text.strip().splitlines()]
    values = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in inputs.items()]
    mod = from_onnx(model(nodes, values, "y", constants, opset=opset))
    return mod, str(mod["main"].struct_info.ret.shape)


PYRAMID = """
    wide = Resize <mode="nearest"> (x, none, scales)
    joined = {op}
    y = Conv (joined, w)
"""


@pytest.mark.parametrize(
    ("op", "shape", "channels"),
    [
        ("Add(wide, lateral)", "R.shape([n, 2, h * 2, w * 2])", 4),
        ("Concat <axis = 1> (wide, lateral)", "R.shape([n, 2, h * 2, w * 2])", 8),
        ("Concat <axis = -3> (lateral, wide)", "R.shape([n, 2, a, b])", 8),
        ("Where (seen, lateral, wide)", "R.shape([n, 2, h * 2, w * 2])", 4),
        ("Mul (lateral, row)", "R.shape([n, 2, a, 7])", 4),
    ],
)
def test_what_is_known_of_a_dimension_stays_known_beside_one_that_is_not(op, shape, channels):
    """Of sizes that no proof relates; one that is even is not the 1 that is broadcast."""
    constants = {
        "none": EMPTY,
        "scales": np.array([1, 1, 2, 2], np.float32),
        "w": rand(2, channels, 1, 1),
        "seen": np.array(True),
        "row": rand(7),
    }
    lateral = ["n", 4, "a", "b"]
    mod, found = _sizes_of_output(
        {"x": IMAGES, "lateral": lateral}, PYRAMID.format(op=op), constants
    )
    assert found == shape
    x, other = rand(1, 4, 3, 2), rand(1, 4, 6, 7 if "row" in op else 4)
    main = [relaxpy.compile(mod, target)["main"] for target in ("native", "reference")]
    np.testing.assert_allclose(main[0](x, other), main[1](x, other), rtol=1e-4, atol=1e-5)


def test_sizes_that_have_to_be_equal_are_checked() -> None:
    constants = {"none": EMPTY, "scales": np.array([1, 1, 2, 2], np.float32), "w": rand(2, 8, 1, 1)}
    text = PYRAMID.format(op="Concat <axis = 1> (wide, lateral)")
    mod, _ = _sizes_of_output({"x": IMAGES, "lateral": ["n", 4, "a", "b"]}, text, constants)
    with pytest.raises(relaxpy.errors.MatchCastError):
        relaxpy.compile(mod)["main"](rand(1, 4, 3, 2), rand(1, 4, 6, 3))


@pytest.mark.parametrize(
    ("opset", "attributes", "most"), [(13, {}, 6), (18, {"num_outputs": 2}, 7)]
)
def test_an_axis_of_unknown_size_has_equal_parts(opset, attributes, most) -> None:
    feeds = [{"x": rand(size, 3)} for size in (4, most)]
    check("Split", {"x": ["n", 3]}, feeds, {}, attributes, opset=opset, outputs=("y", "z"))


@pytest.mark.parametrize("index", [[2, 0], [-1, 1]])
def test_rows_of_an_axis_of_unknown_size_are_taken(index: list[int]) -> None:
    images("Gather", {"i": np.array(index)}, 13, axis=2)


@pytest.mark.parametrize(
    ("last", "shape"),
    [
        (10**9, "R.shape([n, 80000])"),  # 10**9 rows of 320000 bytes are more than addresses
        (2**31 - 1, "R.shape([n, 80000])"),
        (2, "R.shape([T.min(n, 2), 80000])"),
    ],
)
def test_an_end_that_no_array_reaches_is_that_of_the_array(last: int, shape: str) -> None:
    constants = {"a": np.array([0]), "b": np.array([last])}
    mod, found = _sizes_of_output({"x": ["n", 80000]}, "y = Slice (x, a, b)", constants)
    assert found == shape
    x = rand(3, 80000)
    np.testing.assert_array_equal(relaxpy.compile(mod)["main"](x), x[:last])


@pytest.mark.parametrize(
    ("first", "step", "sizes", "shape"),
    [
        (0.0, 1.0, [0, 5], "R.shape([w])"),
        (0.0, 0.5, [0, 5], "R.shape([w * 2])"),
        (2.0, 3.0, [0, 2, 7], None),
    ],
)
def test_ranges_of_sizes_that_are_floats_have_known_lengths(first, step, sizes, shape) -> None:
    text = """
        sizes = Shape (x)
        size = Gather (sizes, three)
        float = Cast <to = 1> (size)
        y = Range (first, float, step)
    """
    constants = {"three": np.array(3), "first": np.float32(first), "step": np.float32(step)}
    mod, found = _sizes_of_output(
        {"x": IMAGES}, text, {k: np.array(v) for k, v in constants.items()}
    )
    assert "length" not in found
    assert shape in (None, found)
    main = relaxpy.compile(mod)["main"]
    for size in sizes:
        expected = np.arange(first, size, step, np.float32)
        np.testing.assert_array_equal(main(np.zeros((1, 4, 1, size), np.float32)), expected)


def test_the_bias_of_recurrent_layers_decides_sizes() -> None:
    feed = {"x": rand(2, 3, 2), "w": rand(1, 12, 2), "r": rand(1, 12, 3)}
    sizes = {"x": [None] * 3, "w": [1, None, None], "r": [1, None, None]}
    check("LSTM", sizes, [feed], {"b": rand(1, 24)}, {"hidden_size": 3}, opset=14)


@pytest.mark.parametrize(
    ("shape", "pads"), [((0, 3), [1, 0, -1, 1]), ((2, 3), [-4, 0, 3, 0]), ((2, 3), [3, 0, -4, 0])]
)
@pytest.mark.parametrize("symbolic", [True, False])
def test_pads_crop_more_elements_than_there_are(shape, pads, symbolic) -> None:
    sizes = ["n", "m"] if symbolic else shape
    check("Pad", {"x": sizes}, [{"x": rand(*shape)}], {"pads": np.array(pads)}, {}, opset=13)


def test_operands_without_elements_may_have_other_sizes_in_concat() -> None:
    check(
        *("Concat", {"x": ["n", "k"], "z": ["m", "k"]}),
        [{"x": rand(2, 3), "z": rand(1, 3)}, {"x": rand(0, 3), "z": rand(1, 3)}],
        *({"c": rand(0, 4), "d": rand(0, 4)}, {"axis": 0}),
        opset=13,
        order=["c", "x", "d", "z"],
    )


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("Tile", ([2, 1], [0, 3])),
        ("Pad", ([1, 0, 0, 2], [0, -1, 3, 1])),
        ("CenterCropPad", ([1, 5], [4, 2])),
    ],
)
def test_the_rank_says_how_many_sizes_there_are(op: str, values: Sequence[Sequence[int]]) -> None:
    feeds = [{"x": rand(n + 2, 3), "sizes": np.array(sizes)} for n, sizes in enumerate(values)]
    check(op, {"x": ["n", 3], "sizes": ["k"]}, feeds, {}, {}, opset=18)


def test_a_vector_of_unknown_length_does_not_say_how_many_axes_there_are() -> None:
    feeds = [{"x": rand(2, 1), "axes": np.array([1])}]
    with pytest.raises(OpNotImplemented, match="the length of a vector of sizes or axes is not"):
        check("Unsqueeze", {"x": ["n", 1], "axes": ["k"]}, feeds, {}, {}, opset=18)


OPEN_RANKS = {
    "Reshape": ([0, -1], [6, 1], [1, 2, 3, 1], [0, 0, 1], [-1]),
    "Expand": ([2, 3], [1, 1], [3], [4, 1, 1], [1, 4, 2, 3], []),
    "ConstantOfShape": ([2, 3], [0, 3], [4], []),
}


@pytest.mark.parametrize("op", OPEN_RANKS)
@pytest.mark.parametrize("rank", [None, 2])
def test_a_vector_of_sizes_of_unknown_length_gives_the_stated_rank_or_any(op, rank) -> None:
    x = {} if op == "ConstantOfShape" else {"x": rand(2, 3)}
    feeds = [{**x, "sizes": np.array(sizes, np.int64)} for sizes in OPEN_RANKS[op]]
    proto = one(op, feeds[0], {}, ["y"], {"x": ["n", 3], "sizes": ["k"]}, opset=18)
    if rank is not None:
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["p", "q"]))
        feeds, [other] = feeds[:2], feeds[-2:-1]
        with pytest.raises(relaxpy.errors.MatchCastError, match="its rank"):
            relaxpy.compile(from_onnx(proto))["main"](*other.values())
    runtime.check(proto, *feeds)


@pytest.mark.parametrize(("shape", "sizes"), [([2, "n", 3], [0, 0, -1]), (["n", 3], [-1, 0])])
def test_a_size_that_is_inferred_beside_a_size_of_0_is_the_quotient_of_the_others(
    shape: list[Any], sizes: list[int]
) -> None:
    x = np.zeros([0 if size == "n" else size for size in shape], "float32")
    feeds = [{"x": x, "sizes": np.array(sizes)}]
    check("Reshape", {"x": shape, "sizes": [len(sizes)]}, feeds, {}, {"allowzero": 1}, opset=18)
    if sizes[0] == 0:  # a copied size of 0, which ONNX Runtime refuses
        for given in ({"sizes": np.array(sizes)}, {"c_sizes": np.array(sizes)}):
            proto = one("Reshape", {"x": x, **given}, {}, ["y"], {"x": shape}, opset=18)
            main = relaxpy.compile(from_onnx(proto))["main"]
            assert main(x, *(v for k, v in given.items() if k == "sizes")).shape == x.shape


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("float[n]", np.ones(3, "float32")),
        ("float[]", np.array(3, "float32")),
        ("float[n, 2]", np.ones((3, 2), "float32")),
        ("float[n, n]", np.ones((3, 3), "float32")),
        ("string[n]", np.array(["a", "b"], object)),
    ],
)
@pytest.mark.parametrize(
    ("inputs", "nodes"),
    [
        ("optional({kind}) o", "y = OptionalGetElement (o)"),
        ("optional({kind}) o", "e = OptionalGetElement (o) y = OptionalGetElement (o)"),
        ("optional({kind}) o, optional({kind}) q", "y = OptionalGetElement (q)"),
        ("optional({kind}) o, {kind} q", "y = OptionalGetElement (o)"),
    ],
)
def test_optional_inputs_have_named_sizes(inputs: str, nodes: str, kind: str, value: Any) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({inputs.format(kind=kind)}) => ({kind} y) {{ {nodes} }}"""
    )
    runtime.check(proto, {given.name: value for given in proto.graph.input})
