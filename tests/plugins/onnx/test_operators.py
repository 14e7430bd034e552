"""What the tests of the ONNX project leave out: attributes, versions, operands, and refusals.

ONNX Runtime is the oracle, or the reference of the package onnx where that has no such operator.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper  # noqa: F401 (the rows name numpy_helper)
from onnx.reference import ReferenceEvaluator

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.runtime import check, results
from tests.plugins.onnx.texts import Row, ids, one, rows_of
from tests.rows import targets

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(11)


def rand(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape: int, dtype: str = "uint8") -> Array:
    return RNG.integers(0, 100, shape).astype(dtype)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


IMAGE = rand(1, 2, 4, 5)
LAYER = {"x": rand(4, 2, 3), "w": rand(1, 5, 3), "r": rand(1, 5, 5)}
GATED = {"x": rand(4, 2, 3), "w": rand(1, 15, 3), "r": rand(1, 15, 5)}
CELL = {"x": rand(4, 2, 3), "w": rand(1, 20, 3), "r": rand(1, 20, 5)}
HEADS = {"q": rand(1, 2, 3, 4), "k": rand(1, 2, 5, 4), "v": rand(1, 2, 5, 4)}
X3 = rand(1, 3, 4)
RESIZED = {"x": IMAGE, "": None, " ": None, "c_": ints(1, 2, 3, 3)}
TEXTS = np.array(["1.5", "-2", "1e3"], object)

#: Rows end with the number of outputs.
CASES = rows_of(
    """
Attention-23(is_causal=1, qk_matmul_output_mode=1) <- **HEADS => 4
Attention-23(is_causal=1, softcap=2.0) <- **HEADS
Attention-23 <- **HEADS, m=np.array([[True, False, True]] * 3)
BatchNormalization-9 <- x=rand(3), **{n: rand(1) ** 2 for n in "sbmv"}
Cast-13(to=TensorProto.FLOAT) <- x=TEXTS
Cast-13(to=TensorProto.INT64) <- x=np.array([["7"], ["-9"]], object)
Cast-13(to=TensorProto.STRING) <- x=ints(7, -9)
Cast-13(to=TensorProto.STRING) <- x=np.array([True, False])
CastLike-15 <- x=np.array([1.5, -0.25, np.inf, np.nan], np.float32), c_=TEXTS
Concat-4(axis=1) <- x=rand(2, 3), y=rand(2, 4)
Constant-13(value=numpy_helper.from_array(TEXTS[None])) <-
Constant-13(value_string="one") <-
Constant-13(value_strings=["one", "two"]) <-
ConvInteger-10 <- x=whole(1, 2, 4, 4), w=whole(3, 2, 2, 2), p=whole()
ConvInteger-10(group=2, auto_pad="SAME_UPPER", strides=[2, 2]) <- x=whole(2, 4, 6, 7),
    c_w=whole(6, 2, 3, 3), p=whole()
ConvInteger-10(pads=[2, 0, 1, 1], dilations=[2, 1]) <- x=whole(1, 3, 6, 7), c_w=whole(5, 3, 3, 2),
    c_p=whole(), c_q=whole()
GatherND-12 <- x=rand(3, 4), c_=ints(1, 0)[None]
GlobalLpPool-2(p=1) <- x=IMAGE
GlobalLpPool-2(p=3) <- x=IMAGE
GRU-14(hidden_size=5, linear_before_reset=1) <- **GATED, b=rand(1, 30) => 2
GRU-14(hidden_size=5) <- **GATED, b=rand(1, 30) => 2
GRU-14(hidden_size=5, linear_before_reset=1, clip=0.4) <- **GATED => 2
GroupNormalization-18(num_groups=2) <- x=IMAGE, s=rand(2), b=rand(2)
LpPool-18(kernel_shape=[2, 2], p=1) <- x=IMAGE
LSTM-14(hidden_size=5, clip=0.5, input_forget=1) <- **CELL => 3
LSTM-14(hidden_size=5, activations=["HardSigmoid", "Affine", "ScaledTanh"], activation_alpha=[0.3,
    0.8, 1.5], activation_beta=[0.4, 0.1, 0.6]) <- **CELL => 3
MatMulInteger-10 <- a=whole(3, 4), b=whole(4, 5)
QLinearConv-10 <- x=whole(1, 2, 4, 4), xs=np.float32(0.02), xz=np.uint8(9), w=whole(3, 2, 2, 2),
    ws=np.float32(0.03), wz=np.uint8(5), ys=np.float32(0.5), yz=np.uint8(3), b=whole(3,
    dtype="int32")
QLinearConv-10 <- x=np.array([[[[255, 255, 147]]]], np.uint8), c_xs=np.float32(0.003921556),
    c_xz=np.uint8(0), c_w=np.array([[[[255, 46, 1]]]], np.uint8), c_ws=np.float32(0.002117994),
    c_wz=np.uint8(0), c_ys=np.float32(0.004970701), c_yz=np.uint8(31)
NonZero-13 <- x=np.array(True)
Range-11 <- c_a=np.float32(1), c_b=np.float32(3), c_c=np.float32(0.5)
ReduceMean-18 <- x=whole(3, 4, dtype="int32"), c_=ints(1)
RMSNormalization-23 <- x=rand(2, 4), s=rand(1)
RNN-14(hidden_size=5, activations=["LeakyRelu"], activation_alpha=[0.2]) <- **LAYER => 2
RNN-14(hidden_size=5, activations=["ThresholdedRelu"], activation_alpha=[0.7]) <- **LAYER => 2
RNN-14(hidden_size=5, activations=["Elu"]) <- **LAYER => 2
RNN-14(hidden_size=5, activations=["Softsign"], clip=0.3) <- **LAYER => 2
RoiAlign-10(output_height=2, output_width=3) <- x=rand(1, 2, 6, 6), r=np.array([[0, 0, 4, 4]],
    np.float32), b=ints(0)
STFT-17 <- x=rand(2, 16), c_=np.int64(4), _=None, c_l=np.int64(8)
Split-18(num_outputs=1) <- x=rand(4, 3)
Slice-13 <- x=rand(4, 3), c_s=ints(2 ** 31 - 1), c_e=ints(-9), c_a=ints(0), c_t=ints(-1)
QuantizeLinear-21(axis=1, block_size=3) <- x=rand(4, 5), s=rand(4, 2) ** 2 + 1, z=whole(4, 2)
StringConcat-20 <- x=TEXTS, c_=TEXTS[:1]
TopK-11(largest=0) <- x=rand(4, 9), c_=ints(3) => 2
TopK-11 <- x=rand(4, 9), c_=ints(0) => 2
Upsample-7(scales=[1.0, 1.0, 2.0, 3.0]) <- x=IMAGE
Affine-7(alpha=2.0, beta=0.5) <- x=IMAGE
Crop-7(border=[1, 0, 2, 1]) <- x=IMAGE
Crop-7(border=[1, 2, 0, 0], scale=[2, 3]) <- x=IMAGE
ImageScaler-7(scale=2.0, bias=[0.5, -1.0]) <- x=IMAGE
ParametricSoftplus-7(alpha=2.0, beta=0.5) <- x=IMAGE
Scale-7(scale=3.0) <- x=IMAGE
ScaledTanh-7(alpha=2.0, beta=0.5) <- x=IMAGE
Resize-11(mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn") <- x=IMAGE,
    c_=rand(0), c_s=np.array([1, 1, 0.6, 0.6], np.float32)
Resize-10 <- x=IMAGE, c_s=np.array([1, 2, 0.6, 1.7], np.float32)
Resize-10 <- x=IMAGE, s=np.array([1, 2, 0.6, 1.7], np.float32)
Resize-18(mode="linear", antialias=1, axes=[2, 3]) <- x=IMAGE, _=None, _2=None, c_s=ints(3, 3)
Resize-18(mode="cubic", antialias=1, exclude_outside=1) <- x=IMAGE, _=None, _2=None, c_s=ints(1,
    2, 3, 3)
Resize-18(mode="linear", keep_aspect_ratio_policy="not_larger", axes=[2, 3]) <- x=IMAGE, _=None,
    _2=None, c_s=ints(7, 9)
Resize-13(mode="cubic", exclude_outside=1) <- x=IMAGE, _=None, c_s=np.array([1, 1, 0.5, 0.5],
    np.float32)
Pow-15 <- x=whole(5, dtype="int32"), y=np.array([2, 1, 0, 3, 1], np.int64)
DynamicQuantizeLinear-11 <- x=np.zeros(4, np.float32) => 3
DynamicQuantizeLinear-11 <- x=rand(5) => 3
DynamicQuantizeLinear-11 <- x=-abs(rand(5)) => 3
""",
    globals(),
)


def oracle(proto: onnx.ModelProto) -> Any:
    """ONNX Runtime, or the reference of ONNX if that has no such operator."""

    def evaluate(feed: Any) -> Any:
        try:
            return results(proto)(feed)
        except Exception:
            return ReferenceEvaluator(proto).run(None, feed)

    return evaluate


@pytest.mark.parametrize("row", CASES, ids=ids(CASES))
def test_operators_return_what_the_oracle_does(row: Row) -> None:
    check(row.model(outputs=int(row.rest or 1)), row.feed(), oracle=oracle)


@pytest.mark.parametrize(
    ("operands", "attributes", "shape"),
    [
        ({"x": ints(2, 3)}, {"input_as_shape": 1, "value": 2.0}, (2, 3)),
        ({"c_": ints(2, 3)}, {"input_as_shape": 1, "extra_shape": [4], "dtype": 7}, (2, 3, 4)),
        ({"x": rand(3, 1)}, {"value": 0.5}, (3, 1)),
        ({}, {"shape": [5], "value": 3.0, "dtype": 10}, (5,)),
    ],
)
def test_a_constant_fills_a_shape(operands, attributes, shape) -> None:
    """No oracle has this operator any longer, which PyTorch wrote."""
    given = [x for name, x in operands.items() if name != "c_"]
    mod = from_onnx(one("ConstantFill", operands, attributes, opset=6))
    found = relaxpy.compile(mod, "numpy")["main"](*given)
    dtype = helper.tensor_dtype_to_np_dtype(attributes.get("dtype", 1))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.full(shape, attributes.get("value", 0), dtype))


#: What is not imported, and a part of the reason.
REFUSED = rows_of(
    r"""
AffineGrid-20 <- x=rand(1, 4, 5), c_=ints(1, 1, 2, 2) => affine maps of 4 axes
Attention-23 <- **{n: rand(1, 3, 4) for n in "qkv"} => need q_num_heads
Attention-23 <- **HEADS, m=rand() => attn_mask has rank 0, expected 1 to 4
Attention-23(softcap=2.0) <- q=rand(1, 3, 2, 4), k=rand(1, 2, 2, 4), v=rand(1, 2, 2, 4) => 3 heads
    of queries for 2 heads of keys
DeformConv-19 <- x=rand(1, 1, 2, 2, 2, 2), w=rand(1, 1, 1, 1, 1, 1), o=rand(1, 4, 2, 2, 2, 2) => 4
    axes of space are more than 3
GRU-14(hidden_size=5) <- _=None, w=GATED["w"], r=GATED["r"] => operand X is missing
GridSample-16 <- x=rand(1, 1, 3), g=rand(1, 2, 1) => expected images of rank 4 or 5, found rank 3
ImageDecoder-20(pixel_format="CMYK") <- x=whole(9) => 'CMYK', expected 'RGB' or
Gather-13 <- x=rand(), i=ints(0) => axis 0 is not one of a tensor of rank 0
LpNormalization-1(p=3) <- x=IMAGE => p is 3, expected 1 or 2
RNN-14(hidden_size=5, activations=["Swish"]) <- **LAYER => activation 'Swish'
RNN-14(hidden_size=5, direction="both") <- **LAYER => direction 'both'
RNN-14(hidden_size=5, activations=["Tanh"] * 2) <- **LAYER => do not fit
Resize-18 <- x=IMAGE, _=None, c_=np.ones(3, np.float32) => scales has 3 numbers, expected 4
Resize-18 <- x=IMAGE, _=None, _2=None, c_=ints(3, 3) => sizes has 2 numbers, expected 4
Resize-18 <- x=IMAGE => neither scales nor sizes
Resize-18(keep_aspect_ratio_policy="crop") <- **RESIZED => 'keep_aspect_ratio_policy' is 'crop'
Resize-18(coordinate_transformation_mode="tf_crop_and_resize") <- **RESIZED => needs a region
Resize-18(coordinate_transformation_mode="none") <- **RESIZED => coordinate_transformation_mode' is
Resize-18(nearest_mode="up") <- **RESIZED => nearest_mode' is 'up'
Resize-18(mode="area") <- **RESIZED => mode' is 'area', expected 'nearest'
RotaryEmbedding-23 <- x=X3, c_1=rand(2, 2), c_2=rand(2, 2) => needs num_heads
STFT-17 <- x=rand(1, 16, 1), c_=np.int64(4), w=rand() => of rank 1, found rank 0
STFT-17 <- x=rand(1, 16, 3), c_=np.int64(4), _=None, c_l=np.int64(8) => parts
RotaryEmbedding-23 <- x=rand(2, 3), c_1=X3, c_2=X3 => rank 3 or 4, found rank 2
Sum-13 <-  => it has no operands
Mean-13 <-  => it has no operands
BitShift-11(direction="UP") <- x=whole(2), y=whole(2) => 'UP', expected 'LEFT'
Col2Im-18 <- x=X3, c_=ints(*[2] * 9), c_b=ints(2, 1) => block_shape has 2 numb
Col2Im-18 <- x=IMAGE, c_=ints(4, 2), c_b=ints(2, 1) => expected a tensor of rank 3
ConstantOfShape-9(values=1) <- c_=ints(2) => attribute 'values' is not known
Pad-6(pads=[1, 1]) <- x=IMAGE => pads has 2 numbers, expected 8
Crop-7(border=[0, 3, 0, 3]) <- x=rand(1, 1, 4, 9) => takes 6 of the height 4
Crop-7(border=[5, 0, 5, 0]) <- x=rand(1, 1, 4, 9) => takes 10 of the width 9
Crop-7(border=[0, 0], scale=[2, 2]) <- x=IMAGE => border has 2 numbers, expected 4
Crop-7(border=[-1, 0, 0, 0]) <- x=IMAGE => negative
Pad-25(mode="SAME") <- x=X3, c_=ints(*[1] * 6) => 'mode' is 'SAME', expected 'con
Reshape-13 <- x=X3, s=rand(2) => operand shape is float32, expected int64
RMSNormalization-1(axis="x") <- x=X3, s=rand(4) => the type STRING, expected INT
Slice-9(starts=[0], ends=[1], axes=[5]) <- x=X3 => axis 5 is not one of a tens
Slice-9(starts=[0], ends=[1, 2]) <- x=X3 => ends has 2 numbers, expected 1
Split-11(split=[3], axis=2) <- x=X3 => parts of .3. elements, expected 4 in all
Split-13(axis=2) <- x=X3, c_=ints(1, 3) => split has 2 numbers, expected 1
SplitToSequence-11 <- x=X3, c_=ints(1, 3) => of .1, 3. elements, expected 1 in all
Tile-13 <- x=X3, c_=ints(2) => repeats has 1 numbers, expected 3
TopK-1(k=-1) <- x=X3 => k is -1, expected 0 to 4
TopK-11(axis=2) <- x=X3, c_=ints(5) => k is 5, expected 0 to 4
""",
    globals(),
)


def test_texts_of_floats_tell_them_apart() -> None:
    x = np.array([-2, 1 / 3, 1e20])
    proto = one("Cast", {"x": x}, {"to": TensorProto.STRING})
    [expected] = ReferenceEvaluator(proto).run(None, {"x": x})
    for target in targets(str(proto)):
        found = relaxpy.compile(from_onnx(proto), target)["main"](x)
        assert list(found) == list(expected) == ["-2.0", "0.3333333333333333", "1e+20"]


@pytest.mark.parametrize("row", REFUSED, ids=ids(REFUSED))
def test_what_is_not_imported_is_told(row: Row) -> None:
    with pytest.raises(NotImplementedError, match=row.rest):
        from_onnx(row.model())


@pytest.mark.parametrize(
    ("op", "opset", "operands", "open_sizes", "attributes", "reason"),
    [
        ("Attention", 23, HEADS, {n: [1, 2, 3, "w"] for n in "qkv"}, {}, "there is no scale"),
        (
            "DeformConv",
            19,
            {"x": IMAGE, "w": IMAGE, "o": IMAGE},
            {"w": [1, 2, "m", "n"]},
            {},
            "filter are symbolic",
        ),
        (
            "GatherND",
            13,
            {"x": IMAGE, "i": ints(1)[None]},
            {"i": ["n", "m"]},
            {},
            "a shape of the result",
        ),
        (
            "GroupNormalization",
            18,
            {"x": IMAGE, "s": rand(2), "b": rand(2)},
            {"x": [1, "n", 4, 5]},
            {"num_groups": 2},
            "channels is symbolic",
        ),
        (
            "MaxPool",
            12,
            {"x": IMAGE},
            {"x": [1, 2, "n", 5]},
            {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
            "depends on symbolic sizes",
        ),
        (
            "RotaryEmbedding",
            23,
            {"x": IMAGE, "c_1": rand(1, 2), "c_2": rand(1, 2)},
            {"x": [1, 2, 4, "n"]},
            {},
            "size of heads is symbolic",
        ),
    ],
)
def test_sizes_that_have_to_be_known_are_told(op, opset, operands, open_sizes, attributes, reason):
    outputs = 2 if op == "MaxPool" else 1
    with pytest.raises(NotImplementedError, match=reason):
        from_onnx(one(op, operands, attributes, outputs, open_sizes, opset=opset))


@pytest.mark.parametrize("sizes", [["n", "m"], ["l", "n", "m"]], ids=["rows", "tables"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("op", ["GatherND", "ScatterND"])
def test_a_stated_rank_says_how_many_indices_are_in_a_tuple(
    op: str, count: int, sizes: list[str]
) -> None:
    places = ints(-1, 2, 1, 0, 1, -1, 1, 0, 0)[: 3 * count].reshape(3, count)
    indices = np.reshape(places, (*[1] * (len(sizes) - 2), 3, count))
    operands: dict[str, Any] = {"x": rand(3, 3, 4), "i": indices}
    part = (*indices.shape[:-1], *operands["x"].shape[count:])
    if op == "ScatterND":
        operands["u"] = rand(*part)
    made = one(op, operands, {}, sizes={"i": sizes}, opset=16)
    if op == "GatherND":
        shape = [f"d{k}" for k in range(len(part))]
        stated = helper.make_tensor_value_info("y0", TensorProto.FLOAT, shape)
        made.graph.output[0].CopyFrom(stated)
    check(made, operands)
    other = {**operands, "i": np.concatenate([indices, indices], -1)}
    with pytest.raises(RelaxpyError, match=rf"is {2 * count}, not {count}"):
        relaxpy.compile(from_onnx(made))["main"](*other.values())


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("names", [("x", "y"), ("x", "c_y"), ("c_x", "y")], ids=["xy", "xc", "cy"])
def test_powers_of_integers_wrap_around(dtype: str, names: tuple[str, str]) -> None:
    """ONNX Runtime computes them in float64, the reference of ONNX refuses exponents below 0."""
    base = np.array([3, -3, 46341, 2, -1, 1, 7, 2**31 - 1], dtype)
    exponent = ints(40, 41, 5, 63, 1001, -5, -2, 7)
    operands = dict(zip(names, (base, exponent), strict=True))
    powers = [
        int(b) ** int(e) if e >= 0 else int(b == 1) for b, e in zip(base, exponent, strict=True)
    ]
    wrapped = np.array([p % 2**64 for p in powers], np.uint64).astype(dtype)
    mod = from_onnx(one("Pow", operands, {}))
    for target in ("native", "numpy"):
        found = relaxpy.compile(mod, target)["main"](*[x for n, x in operands.items() if n in "xy"])
        np.testing.assert_array_equal(found, wrapped)


@pytest.mark.parametrize("points", [None, ints(5), ints(2, 7, 4)])
def test_zero_points_of_the_rows_of_a_product(points: Array | None) -> None:
    """No oracle takes a vector of them."""
    a, b = whole(3, 4), whole(4, 5)
    operands = {"a": a, "b": b} | ({} if points is None else {"p": points.astype(np.uint8)})
    mod = from_onnx(one("MatMulInteger", operands, {}))
    zero = 0 if points is None else points[:, None]
    for target in ("native", "numpy"):
        found = relaxpy.compile(mod, target)["main"](*operands.values())
        np.testing.assert_array_equal(found, (a.astype(int) - zero) @ b.astype(int))


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "mean"),
    [
        ("RandomNormal", {}, {"shape": [400], "mean": 3.0, "scale": 0.1}, 3.0),
        ("RandomNormalLike", {"x": rand(400)}, {"mean": 3.0, "scale": 0.1}, 3.0),
        ("RandomUniform", {}, {"shape": [400], "low": 2.0, "high": 4.0}, 3.0),
        ("RandomUniformLike", {"x": rand(400)}, {"low": 2.0, "high": 4.0}, 3.0),
        (
            "Multinomial",
            {"x": np.log(np.array([[0.5, 0.0001, 0.5]], np.float32))},
            {"sample_size": 400},
            1.0,
        ),
    ],
)
def test_draws_have_the_mean_that_is_asked_for(op, operands, attributes, mean) -> None:
    mod = from_onnx(one(op, operands, {**attributes, "seed": 1.0}))
    found = np.asarray(relaxpy.compile(mod)["main"](*operands.values()))
    assert found.size == 400
    assert abs(found.mean() - mean) < 0.2
    assert len(np.unique(found)) > (1 if op == "Multinomial" else 350)


def test_versions_that_other_packages_do_not_have_any_more() -> None:
    x = rand(2, 3)
    reshaped = from_onnx(one("Reshape", {"x": x}, {"shape": [3, -1]}, opset=1))
    np.testing.assert_array_equal(relaxpy.compile(reshaped)["main"](x), x.reshape(3, 2))
    operands = {"x": x, "c_t": ints(2), "c_a": ints(1)}
    tiled = from_onnx(one("Tile", operands, {}, opset=1))
    np.testing.assert_array_equal(relaxpy.compile(tiled)["main"](x), np.tile(x, (1, 2)))
    scales = {"height_scale": 2.0, "width_scale": 1.0}
    larger = from_onnx(one("Upsample", {"x": IMAGE}, scales, opset=1))
    np.testing.assert_array_equal(relaxpy.compile(larger)["main"](IMAGE), IMAGE.repeat(2, 2))
    joined = from_onnx(one("Concat", {"x": x, "y": x}, {}, opset=1))
    np.testing.assert_array_equal(relaxpy.compile(joined)["main"](x, x), np.hstack([x, x]))
    operands = {"x": IMAGE, **{n: rand(*IMAGE.shape[1:]) ** 2 for n in "sbmv"}}
    normal = from_onnx(one("BatchNormalization", operands, {"spatial": 0}, opset=7))
    scale, bias, mean, variance = list(operands.values())[1:]
    expected = (IMAGE - mean) / np.sqrt(variance + 1e-5) * scale + bias
    found = relaxpy.compile(normal)["main"](*operands.values())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
