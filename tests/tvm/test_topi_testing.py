"""The functions of `topi.testing` agree with operators, which share no code with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.relax import op
from relaxpy.topi import testing
from tests.rows import table

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def integers(limit: int, *shape: int) -> Any:
    return RNG.integers(0, limit, shape)


def run(build: Callable[..., relax.Expr], *arrays: Any) -> Any:
    """The result of a function of expressions, on NumPy."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorStructInfo(a.shape, a.dtype.name))
        for i, a in enumerate(arrays)
    ]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(build(*params)))
    return relaxpy.compile(builder.get(), "numpy")["main"](*arrays)


def check(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


A1, A2, A3 = floats(2, 4, 9), floats(2, 4, 7, 8), floats(1, 4, 5, 6, 7)
W1, W2, W3 = floats(6, 2, 3), floats(6, 2, 3, 2), floats(4, 2, 3, 2, 1)


ROWS = table("""
testing.group_conv1d_ncw_python(A1, W1, 2, 1, 2, 2) <- A1, W1
    => op.nn.conv1d(v0, v1, strides=2, padding=1, dilation=2, groups=2)
testing.conv1d_ncw_python(A1, np.ones((1, 4, 3), "float32"), 1, "VALID", 1)
    <- A1, np.ones((1, 4, 3), "float32") => op.nn.conv1d(v0, v1)
testing.conv2d_nchw_python(A2, W2, (2, 1), (1, 0, 2, 1), 2) <- A2, W2
    => op.nn.conv2d(v0, v1, strides=(2, 1), padding=(1, 0, 2, 1), groups=2)
testing.conv2d_nchw_python(A2, W2, 1, "SAME", 2) <- A2, W2
    => op.nn.conv2d(v0, v1, padding=(1, 1, 1, 0), groups=2)
testing.conv2d_nhwc_python(np.moveaxis(A2, 1, -1), W2.transpose(2, 3, 1, 0), 2, 1, 2) <- A2, W2
    => op.permute_dims(op.nn.conv2d(v0, v1, strides=2, padding=1, groups=2), (0, 2, 3, 1))
testing.conv2d_hwcn_python(A2.transpose(2, 3, 1, 0), np.tile(W2.transpose(2, 3, 1, 0), (2, 1)), 1,
    0) <- A2, W2 => op.permute_dims(op.nn.conv2d(v0, op.concat([v1, v1], axis=1)), (2, 3, 1, 0))
testing.depthwise_conv2d_python_nchw(A2, W2[:4], 1, 1) <- A2, W2[:4]
    => op.nn.conv2d(v0, op.reshape(v1, (8, 1, 3, 2)), padding=1, groups=4)
testing.depthwise_conv2d_python_nhwc(np.moveaxis(A2, 1, -1), W2[:4].transpose(2, 3, 0, 1), 2, 0)
    <- A2, W2[:4]
    => op.permute_dims(op.nn.conv2d(v0, op.reshape(v1, (8, 1, 3, 2)), strides=2, groups=4), (0, 2,
    3, 1))
testing.conv3d_ncdhw_python(A3, W3, (1, 2, 1), (1, 0, 2), 2) <- A3, W3
    => op.nn.conv3d(v0, v1, strides=(1, 2, 1), padding=(1, 0, 2), groups=2)
testing.conv3d_ndhwc_python(np.moveaxis(A3, 1, -1), W3.transpose(2, 3, 4, 1, 0), 1, 0, 2) <- A3, W3
    => op.permute_dims(op.nn.conv3d(v0, v1, groups=2), (0, 2, 3, 4, 1))
testing.group_conv1d_transpose_ncw_python(A1, W1[:4], 2, (1, 0), (1,), 2) <- A1, W1[:4]
    => op.nn.conv1d_transpose(v0, v1, strides=2, padding=(1, 0), output_padding=1, groups=2)
testing.conv1d_transpose_ncw_python(A1, W1[:4], 1, (3, 3), (0,)) <- A1, W1[:4]
    => op.nn.conv1d_transpose(v0, v1, padding=(3, 3))
testing.conv2d_transpose_nchw_python(A2, W2[:4], 2, 1, (1, 0), 2) <- A2, W2[:4]
    => op.nn.conv2d_transpose(v0, v1, strides=2, padding=1, output_padding=(1, 0), groups=2)
testing.conv2d_transpose_nhwc_python(np.moveaxis(A2, 1, -1), W2[:4].transpose(2, 3, 1, 0), "HWOI",
    1, 0) <- A2, W2[:4] => op.permute_dims(op.nn.conv2d_transpose(v0, v1), (0, 2, 3, 1))
testing.conv3d_transpose_ncdhw_python(A3, W3, 2, (1, 1, 0), 1, 2) <- A3, W3
    => op.nn.conv3d_transpose(v0, v1, strides=2, padding=(1, 1, 0), output_padding=1, groups=2)
""")


@pytest.mark.parametrize(("value", "operands", "call"), ROWS)
def test_convolutions(value: str, operands: str, call: str) -> None:
    build = lambda a, w: eval(call, globals() | {"v0": a, "v1": w})  # noqa: E731
    check(eval(value), run(build, *eval(f"[{operands}]")))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("count", [False, True])
def test_pools(count: bool, ceil: bool) -> None:
    window = ((3, 2), (2, 3), (1, 2), (1, 0), (0, 1))
    options = {"strides": (2, 3), "dilation": (1, 2), "padding": (1, 0, 0, 1), "ceil_mode": ceil}
    mean = run(lambda a: op.nn.avg_pool2d(a, (3, 2), count_include_pad=count, **options), A2)
    check(testing.poolnd_python(A2, *window, "avg", count, ceil), mean)
    if not count:
        greatest = run(lambda a: op.nn.max_pool2d(a, (3, 2), **options), A2)
        check(testing.poolnd_python(A2, *window, "max", False, ceil), greatest)
        data = np.moveaxis(A2, 1, -1)
        result = testing.poolnd_python(data, *window, "max", False, ceil, layout="NHWC")
        check(np.moveaxis(result, -1, 1), greatest)


def test_adaptive_pools() -> None:
    check(
        testing.adaptive_pool(A3, (3, 5, 2), "avg", "NCDHW"),
        run(lambda a: op.nn.adaptive_avg_pool3d(a, (3, 5, 2)), A3),
    )
    greatest = testing.adaptive_pool(np.moveaxis(A1, 1, 2), 3, "max", "NWC")
    assert greatest.shape == (2, 3, 4)
    check(greatest, np.moveaxis(A1.reshape(2, 4, 3, 3).max(3), 1, 2))


def test_normalisations() -> None:
    gamma, beta = floats(8), floats(8)
    check(
        testing.layer_norm_python(A2, gamma, beta, -1),
        run(lambda a, g, b: op.nn.layer_norm(a, g, b, axes=[-1]), A2, gamma, beta),
    )
    check(
        testing.rms_norm_python(A2, gamma, (-1,), 0.1),
        run(lambda a, g: op.nn.rms_norm(a, g, axes=[-1], epsilon=0.1), A2, gamma),
    )
    check(
        testing.group_norm_python(A2, gamma[:4], beta[:4], 2, 1, [2, 3]),
        run(
            lambda a, g, b: op.nn.group_norm(a, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
            *(A2, gamma[:4], beta[:4]),
        ),
    )
    check(
        testing.instance_norm_python(A2, gamma, None, 3, 0.0),
        testing.layer_norm_python(A2, gamma, None, 3, 0.0),
    )
    for function, softmax in (
        (testing.softmax_python, op.nn.softmax),
        (testing.log_softmax_python, op.nn.log_softmax),
    ):
        check(function(A2), run(lambda a, f=softmax: f(a, axis=1), A2))
    unit = testing.l2_normalize_python(A2, 1e-9, axis=1)
    check(np.square(unit).sum(1), np.ones((2, 7, 8)))
    window = np.lib.stride_tricks.sliding_window_view(
        np.pad(A2**2, ((0, 0), (1, 1), (0, 0), (0, 0))), 3, axis=1
    ).sum(-1)
    check(testing.lrn_python(A2, 3, 1, 2.0, 0.6, 0.75), A2 / (2 + 0.2 * window) ** 0.75)


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalisation(training: bool) -> None:
    operands = [A2, floats(4), floats(4), floats(4), abs(floats(4))]
    options = {"axis": 1, "epsilon": 1e-3, "center": True, "scale": True}
    expected = run(
        lambda *args: op.nn.batch_norm(*args, **options, momentum=0.1, training=training), *operands
    )
    found = testing.batch_norm(*operands, *options.values(), training, 0.1)  # type: ignore[arg-type]
    for actual, result in zip(found, expected, strict=True):
        check(actual, result)


@pytest.mark.parametrize(
    ("causal", "window"), [("none", None), ("TopLeft", 2), ("BottomRight", None)]
)
def test_attention(causal: Any, window: int | None) -> None:
    q, k, v, bias = floats(2, 5, 4, 3), floats(2, 7, 4, 3), floats(2, 7, 4, 6), floats(2, 4, 5, 7)
    mask = None if causal == "none" else causal
    expected = run(
        lambda *args: op.nn.attention(*args, scale=0.3, causal_mask=mask, window_size=window),
        *(q, k, v, bias),
    )
    check(testing.attention_python(q, k, v, bias, 0.3, causal, window), expected)
    moved = [array.transpose(0, 2, 1, 3) for array in (q, k, v)]
    result = testing.attention_python(*moved, bias, 0.3, causal, window, "BNSH")
    check(result.transpose(0, 2, 1, 3), expected)
    grouped = testing.attention_python(q, k[:, :, :2], v[:, :, :2], None, "none", "none")
    same = testing.attention_python(
        q, k[:, :, [0, 0, 1, 1]], v[:, :, [0, 0, 1, 1]], None, 3**-0.5, "none"
    )
    check(grouped, same)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_targets(reduction: Any) -> None:
    operands = [floats(4, 3, 2), integers(3, 4, 2), abs(floats(3))]
    expected = run(
        lambda p, t, w: op.nn.nll_loss(p, t, w, reduction=reduction, ignore_index=1), *operands
    )
    check(testing.nll_loss(*operands, reduction, 1), expected)


def test_products() -> None:
    x, y, bias = floats(3, 4), floats(5, 4), floats(5)
    check(testing.dense(x, y, bias, use_bias=True, use_relu=True), np.maximum(x @ y.T + bias, 0))
    a, b = floats(2, 3, 4), floats(1, 5, 4)
    expected = np.einsum("bij,kj->bik", a, b[0])
    check(testing.batch_matmul(a, b), expected)
    check(testing.batch_matmul(a.transpose(0, 2, 1), b, "float64", trans_x=True), expected)


def test_selected_elements() -> None:
    a = floats(3, 4, 5)
    at = integers(4, 3, 6, 5)
    check(testing.gather_python(a, 1, at), run(lambda x, i: op.gather_elements(x, i, 1), a, at))
    pairs = np.stack([integers(3, 6), integers(4, 6)])
    check(
        testing.gather_nd_python(a, pairs), run(lambda x, i: op.gather_nd(x, i), a, pairs.T.copy())
    )
    hot = testing.one_hot(pairs, 2, -1, 4, 1, "float32")
    check(hot.transpose(0, 2, 1), np.where(pairs[..., None] == np.arange(4), 2, -1))
    check(testing.strided_slice_python(a, [2, 1], [0, 4], [-1, 2]), a[2:0:-1, 1:4:2])
    check(testing.strided_slice_python(a, [1, 0], [2, -1], None, "size"), a[1:3])
    check(testing.strided_slice_python(a, [1], [3], None, axes=[2]), a[..., 1:3])
    check(testing.slice_axis_python(a, -1, 1, 0), a[..., 1:])
    changed = testing.strided_set_python(a, a[:1] * 0, [1], [2], None)
    check(changed, a * np.array([1, 0, 1])[:, None, None])
    lengths = np.array([1, 4, 2])
    expected = np.where(np.arange(4)[None, :, None] < lengths[:, None, None], a, 9)
    check(testing.sequence_mask(a, lengths, 9, 1), expected)
    swapped = testing.sequence_mask(a.transpose(1, 0, 2), lengths, 9, 0)
    check(swapped, expected.transpose(1, 0, 2))


def test_blocks_of_pixels() -> None:
    a = floats(2, 12, 3, 4)
    check(testing.depth_to_space_python(a, 2, "CRD"), run(lambda x: op.nn.pixel_shuffle(x, 2), a))
    for mode in ("DCR", "CRD"):
        assert testing.depth_to_space_python(a, 2, mode).shape == (2, 3, 6, 8)  # type: ignore[arg-type]
    check(testing.space_to_depth_python(testing.depth_to_space_python(a, 2), 2), a)
    blocks = testing.space_to_batch_nd_python(a, [4, 2], [0, 1], [0, 0], 7)
    assert blocks.shape == (16, 3, 2, 4)
    padded = np.pad(a, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=7)
    check(blocks[2 * (2 * 3 + 1)], padded[0, 3::4, 1::2])
    check(testing.batch_to_space_nd_python(blocks, [4, 2], [0, 1], [0, 0]), a)
    assert testing.dilate_python(a[0, 0], [2, 3], -1.0).tolist()[1] == [-1.0] * 10


def test_diagonals_and_positions() -> None:
    a, values = floats(4, 5), floats(4, 4)
    result = testing.matrix_set_diag(a, values, (-1, 2), "LEFT_RIGHT")
    for i, k in enumerate(range(2, -2, -1)):
        diagonal = np.diagonal(result, k)
        start = 4 - len(diagonal) if k < 0 else 0
        check(diagonal, values[i, start : start + len(diagonal)])
    check(np.diagonal(testing.matrix_set_diag(a, values[0, :3], -1), -1), values[0, :3])
    sequences, queries = np.sort(floats(3, 6)), floats(3, 4)
    expected = (sequences[:, None] < queries[..., None]).sum(-1)
    check(testing.searchsorted_ref(sequences, queries, False, "int32"), expected)
    one = testing.searchsorted_ref(sequences[0], sequences[0], True, "int64")
    assert one.tolist() == [1, 2, 3, 4, 5, 6]


def test_sizes_of_images() -> None:
    for method in ("nearest_neighbor", "linear", "cubic"):
        for mode in ("half_pixel", "align_corners", "asymmetric"):
            options = {"method": method, "coordinate_transformation_mode": mode}
            rounding = "round" if mode == "align_corners" else "floor"
            expected = run(
                lambda a, o=options, r=rounding: op.image.resize2d(
                    a, (14, 4), rounding_method=r, cubic_alpha=-0.5, **o
                ),
                A2,
            )
            check(testing.resize2d_python(A2, (2, 0.5), **options), expected)
            volume = testing.resize3d_python(A2[:, :, None], (1, 2, 0.5), **options)
            check(volume[:, :, 0], expected)
            last = testing.resize2d_python(A2.transpose(0, 2, 3, 1), (2, 0.5), "NHWC", **options)
            check(last.transpose(0, 3, 1, 2), expected)
    check(
        testing.resize1d_python(A1, (3,), "NCW", "nearest_neighbor", "asymmetric"), A1.repeat(3, 2)
    )
    boxes, images = np.array([[0, 0, 1, 1], [0.25, 1, 0.75, -1]], "float32"), np.array([1, 0])
    crops = testing.crop_and_resize_python(A2, boxes, images, (7, 8), "NCHW")
    check(crops[0], A2[1])
    assert crops.shape == (2, 4, 7, 8)
    check(crops[1, ..., -1], 0)


def test_unknown_options_are_refused() -> None:
    for option, match in (
        ({"method": "area"}, "method takes the nearest"),
        ({"coordinate_transformation_mode": "middle"}, "coordinate_transformation_mode is one of"),
        ({"rounding_method": "up"}, "rounding_method is one of"),
    ):
        with pytest.raises(MisuseError, match=match):
            testing.resize2d_python(A2, (2, 2), **option)
    with pytest.raises(MisuseError, match='padding is numbers, "SAME" or "VALID"'):
        testing.conv2d_nchw_python(A2, W2, 1, "FULL", 2)
    with pytest.raises(MisuseError, match="as many or twice as many pads"):
        testing.conv2d_nchw_python(A2, W2, 1, (1, 1, 1), 2)
    with pytest.raises(MisuseError, match="has the axes I, O, H and W"):
        testing.conv2d_transpose_nhwc_python(A2, W2, "HWCN", 1, 0)  # type: ignore[arg-type]
