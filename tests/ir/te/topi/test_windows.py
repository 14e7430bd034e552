"""Convolutions, pools and padding that no operator of Relax reaches, and what they refuse."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, topi
from relaxpy.errors import MisuseError
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import ProducerLoad, Tensor
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.fuzz.seed import COUNT
from tests.ir.ops.cases.windows import convolve, pool, transpose_convolve
from tests.ir.te.topi.test_topi import Array, evaluate
from tests.rows import table


def called(call: str) -> Callable[..., Tensor]:
    """A function of `v0`, `v1`, …, the operands of a call."""
    return lambda *v: eval(call, globals() | {f"v{k}": operand for k, operand in enumerate(v)})


RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    """Whole numbers, of which sums are exact."""
    return RANDOM.integers(-9, 10, shape).astype("float32")


IMAGE, FILTER = floats(2, 4, 5, 6), floats(6, 4, 3, 2)
LINE, TAPS = floats(2, 4, 7), floats(4, 3, 3)
CUBE, BLOCK = floats(1, 2, 3, 4, 3), floats(3, 2, 2, 1, 2)


#: What the table below calls.
DEFINITIONS = {"convolve": convolve, "pool": pool, "transpose_convolve": transpose_convolve}
ROWS = table("""
topi.nn.conv1d(v0, v1, 2, 1) <- LINE, TAPS.transpose(1, 0, 2).copy()
    => convolve(LINE, TAPS.transpose(1, 0, 2), 2, 1)
topi.nn.conv2d(v0, v1, 1, (1, 0), (1, 2)) <- IMAGE, FILTER
    => convolve(IMAGE, FILTER, 1, (1, 0), (1, 2))
topi.nn.conv2d(v0, v1, 2, 0, 1, "NHWC")
    <- IMAGE.transpose(0, 2, 3, 1).copy(), FILTER.transpose(2, 3, 1, 0).copy()
    => convolve(IMAGE, FILTER, 2).transpose(0, 2, 3, 1)
topi.nn.group_conv2d_nchw(v0, v1, 1, 1, 1, 2) <- IMAGE, FILTER[:, :2].copy()
    => convolve(IMAGE, FILTER[:, :2], 1, 1, groups=2)
topi.nn.conv3d_ncdhw(v0, v1, 1, (0, 1, 0), 1, 1) <- CUBE, BLOCK
    => convolve(CUBE, BLOCK, 1, (0, 1, 0))
topi.nn.group_conv1d_transpose_ncw(v0, v1, 2, 1, None, 1, 2) <- LINE, TAPS
    => transpose_convolve(LINE, TAPS, 2, 1, groups=2, more=1)
topi.nn.group_conv2d_transpose_nchw(v0, v1, (1, 2), 0, "float32", 0, 2) <- IMAGE, FILTER[:4].copy()
    => transpose_convolve(IMAGE, FILTER[:4], (1, 2), groups=2)
topi.nn.global_pool(v0, "avg") <- IMAGE => IMAGE.mean((2, 3), keepdims=True)
topi.nn.global_pool(v0, "max", "NWC") <- LINE => LINE.max(1, keepdims=True)
topi.nn.adaptive_pool1d(v0, 3, "max") <- LINE
    => np.stack([LINE[..., a:b].max(-1) for a, b in ((0, 3), (2, 5), (4, 7))], -1)
topi.nn.adaptive_pool(v0, (None, 1), "max") <- IMAGE => IMAGE.max(3, keepdims=True)
topi.nn.adaptive_pool(v0, (None, 6), "max") <- IMAGE => IMAGE
topi.nn.pool2d(v0, 1, 1, 1, 0, "max") <- IMAGE => IMAGE
topi.nn.pool1d(v0, 2, 3, 1, 1, "max") <- LINE => pool(LINE, "max", 2, 3, 1)
topi.nn.pool1d(v0, 17, 1, 1, 1, "max") <- np.full((1, 1, 18), -np.inf, "float32")
    => np.full((1, 1, 4), -np.inf)
topi.nn.pad(v0, (0, 1, 2), (1, 0, 0), 7) <- LINE
    => np.pad(LINE, ((0, 1), (1, 0), (2, 0)), constant_values=7)
topi.nn.pad(v0, (1, 0, 0)) <- LINE => np.pad(LINE, ((1, 1), (0, 0), (0, 0)))
topi.nn.pad(v0, (0, 0, 0)) <- LINE => LINE
""")


@pytest.mark.parametrize(("call", "operands", "value"), ROWS)
def test_functions_of_windows(call: str, operands: str, value: str) -> None:
    expected = eval(value, globals() | DEFINITIONS)
    found = evaluate(called(call), *eval(f"[{operands}]"))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(max(3, COUNT // 5)))
def test_filters_may_be_wider_than_the_data(seed: int) -> None:
    random = Random(seed)
    size, window = ([random.randint(1, most) for _ in "hw"] for most in (7, 4))
    stride, dilation = ([random.randint(1, most) for _ in "hw"] for most in (4, 9))
    padding = [random.randint(0, 12) for _ in "tlbr"]
    spans = (d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True))
    for axis, (n, span) in enumerate(zip(size, spans, strict=True)):
        padding[axis] += max(0, span - n - padding[axis] - padding[axis + 2])
    groups = random.choice((1, 1, 2, 4))
    x, w = floats(1, 4, *size), floats(4, 4 // groups, *window)
    for numbers in (x, w):  # padding is zeros, which a weight of infinity makes NaN
        if random.random() < 0.3:
            numbers.flat[random.randrange(numbers.size)] = random.choice([np.nan, np.inf, -np.inf])
    how = stride, padding, dilation, groups
    found = evaluate(lambda a, b: topi.nn.conv(a, b, *how, "NCHW"), x, w)
    np.testing.assert_array_equal(found, convolve(x, w, *how))


def test_elements_of_filters_that_only_meet_zeros_are_left_out() -> None:
    x, w = te.placeholder((1, 4, 8, 8), name="x"), te.placeholder((4, 4, 3, 3), name="w")
    for dilation, left in ((12, 1), (7, 9)):
        result = topi.nn.conv2d(x, w, 1, dilation, dilation)
        [stage] = [t for t in result.op.input_tensors if t.name != "pad_temp"]
        assert [int(n) for n in stage.shape[2:]] == [left**0.5] * 2


@pytest.mark.parametrize("size", [0, 1, 4])
@pytest.mark.parametrize("value", [0.0, 2.0])
def test_dilation_leaves_room_between_elements(size: int, value: float) -> None:
    x = LINE[..., :size].copy()
    expected = np.full((3, 4, max(0, 3 * size - 2)), value, "float32")
    expected[::2, :, ::3] = x
    np.testing.assert_array_equal(
        evaluate(lambda t: topi.nn.dilate(t, (2, 1, 3), value), x), expected
    )


def test_the_first_stage_is_the_padding_as_in_tvm() -> None:
    x, w = (te.placeholder(a.shape, name="x") for a in (IMAGE, FILTER))
    for padding in ((1, 0), 0):
        result = topi.nn.conv(x, w, 1, padding, 1, 1, "NCHW")
        assert [t.name for t in result.op.input_tensors] == ["pad_temp", "x"]


@pytest.mark.parametrize(
    ("op", "windows"),
    [
        ("max_pool2d", "3, 2, (1, 1), 1"),
        ("max_pool2d", "(3, 2), (1, 2), (1, 0, 1, 2), 1, True"),
        ("avg_pool2d", "2, 3, (2, 1, 3, 0), (3, 2)"),
        ("avg_pool2d", "1, 1, (1, 2), 1"),
    ],
)
def test_pools_of_known_sizes_copy_no_image_and_have_the_same_bits(op, windows) -> None:
    values = np.random.default_rng(1).choice(
        np.array([-0.0, 1.1, -2.3, 1e30, np.inf, np.nan], "float32"), (2, 3, 7, 18)
    )
    known, unknown = (
        relax.transform.LegalizeOps()(
            from_source(f"""
                @I.ir_module
                class Module:
                    @R.function
                    def main(x: R.Tensor({sizes}, "float32")):
                        return R.nn.{op}(x, {windows})
            """)
        )
        for sizes in (values.shape, '("n", 3, "h", "w")')
    )
    assert ("pad_temp" in known.script(), "pad_temp" in unknown.script()) == (False, True)
    padded = relaxpy.compile(unknown, target="numpy")["main"](values).tobytes()
    for target in ("native", "numpy"):
        assert relaxpy.compile(known, target=target)["main"](values).tobytes() == padded


@pytest.mark.parametrize(
    ("dtype", "read"), [("float16", "float32"), ("bfloat16", "float32"), ("int8", "int8")]
)
def test_narrow_floats_are_widened_before_windows_read_them(dtype: str, read: str) -> None:
    x, w = (te.placeholder(a.shape, dtype) for a in (IMAGE, FILTER))
    sums = topi.nn.conv(x, w, 1, 1, 1, 1, "NCHW")
    while "conv" not in sums.op.name:
        [sums] = sums.op.input_tensors
    assert str(sums.op.input_tensors[0].dtype) == read


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("size", [15, "n"])
def test_windows_of_one_channel_read_consecutive_elements(stride, dilation, size) -> None:
    width = size if isinstance(size, int) else tir.Var(size, "int64")
    x, w = te.placeholder((1, 4, 9, width), name="x"), te.placeholder((4, 1, 3, 3), name="w")
    sums = topi.nn.conv(x, w, stride, 1, dilation, 4, "NCHW")
    [*_, along] = sums.op.axis
    nodes = [node for value in sums.op.body for node in walk(value)]
    read = [n for n in nodes if isinstance(n, ProducerLoad) and n.producer.name == "pad_temp"]
    assert len(read) == 9
    for element in read:
        step = affine(element.indices[-1], {along.var})
        assert step is not None
        assert step.constant(along.var) == 1


X = te.placeholder((1, 2, 4, 4), name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topi.nn.pad(X, (1, 1)), "pad: 2 widths for rank 4"),
        (lambda: topi.nn.dilate(X, (1,)), "dilate: 1 stride for rank 4"),
        (lambda: topi.nn.pool2d(X, 2, 2, 1, 0, "min"), "a pool is 'max' or 'avg', found 'min'"),
        (lambda: topi.nn.pool2d(X, (1, 2, 3), 2, 1, 0, "max"), "expected 1 or 2 numbers"),
        (lambda: topi.nn.pool2d(X, 1, 1, 1, (1, 2, 3), "max"), "expected 1 or 2 numbers"),
        (
            lambda: topi.nn.adaptive_pool(X, (1, 2, 3), "avg"),
            "NCHW has 2 spatial axes, found [1, 2, 3]",
        ),
        (lambda: topi.nn.pool2d(3, 1, 1, 1, 0, "max"), "topi.pool2d: data is a tensor expression"),
        (
            lambda: topi.nn.conv(X, X, None, 0, 1, 1, "NCHW"),
            "stride is an integer or a list of integers",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        call()
    assert message in str(caught.value)


def test_sizes_may_be_expressions() -> None:
    n, h = tir.Var("n", "int64"), tir.Var("h", "int64")
    x = te.placeholder((n, 2, h, 4), name="x")
    assert [str(s) for s in topi.nn.pool2d(x, 2, 2, 1, 0, "avg").shape] == [
        "n",
        "2",
        "h // T.int64(2)",
        "T.int64(2)",
    ]
