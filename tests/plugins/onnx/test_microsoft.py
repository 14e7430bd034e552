"""Operators of the domain com.microsoft, as ONNX Runtime computes them."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import relaxpy
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import node_of
from tests.rows import targets

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(5)


def rand(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


TOKENS = np.array([[1, 2, 3, 1, 2, 5, 1, 1, 2], [0, 0, 0, 4, 0, 0, 4, 0, 0]])
SCALE, ZERO = np.float32(0.02), np.uint8(120)
OUT = {"ys": np.float32(0.01), "yz": np.uint8(7)}
X, W, B = rand(2, 5, 12), rand(12, 24), rand(24)
TABLES = {"cos": rand(9, 3), "sin": rand(9, 3)}
PLACES = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
QUANTISED = {"x": whole(2, 3, 4, 5), "xs": SCALE, "xz": ZERO, **OUT}
#: Columns of a layer's quantised weights have scales of their own, or one for a direction.
LAYER = {"x": rand(5, 2, 3), "w": whole(1, 3, 16), "r": whole(1, 4, 16), "b": rand(1, 32)}
BOTH = {"x": rand(4, 2, 3), "w": whole(2, 3, 16), "r": whole(2, 4, 16), "": None}
STATES = {"h": rand(1, 2, 4) / 4, "c": rand(1, 2, 4) / 4, "p": rand(1, 12)}
HEADS = {"num_heads": 4, "kv_num_heads": 2}
ANGLES = RNG.uniform(0, 6, (16, 8))
TURNS = {"cos": np.cos(ANGLES).astype(np.float32), "sin": np.sin(ANGLES).astype(np.float32)}


def grouped(new: int, past: int, lengths: list[int], total: int, *, packed: bool = False) -> Any:
    """Operands of a step: `new` positions behind caches of `past`, where rows have lengths."""
    batch = len(lengths)
    if packed:
        heads: dict[str, Any] = {"qkv": rand(batch, new, 128), "": None, " ": None}
    else:
        heads = {"q": rand(batch, new, 64), "k": rand(batch, new, 32), "v": rand(batch, new, 32)}
    caches = {n: rand(batch, 2, past, 16) if past else None for n in ("past k", "past v")}
    return {
        **heads,
        **caches,
        "n": np.array(lengths, np.int32) - 1,
        "t": np.array([total], np.int32),
    }


SELF = {"x": X, "w": W, "b": B}
MASK = np.tile(np.array([1, 1, 0, 1, 1]), (2, 5, 1))
HEADED = {"q": rand(2, 5, 12), "k": rand(2, 5, 12), "v": rand(2, 5, 12)}
IMAGE = {"x": rand(1, 3, 5, 5), "w": rand(4, 3, 3, 3)}
BLOCKS = {"b": whole(3, 3, 8), "s": rand(3 * 3)}
SIZES = {"K": 40, "N": 3, "bits": 4, "block_size": 16}
PRODUCT = {"a": whole(3, 4), "as": SCALE, "az": ZERO, "b": whole(4, 5), "bs": SCALE, "bz": ZERO}
PAIR = {"x": whole(2, 3), "xs": SCALE, "xz": ZERO, "y": whole(3), "s": SCALE, "z": ZERO, **OUT}
ROTATE = rand(5, 4), rand(5, 4)
STEP = {name: rand(2, 1, 8) for name in "qkv"}
ENCODED = {"k": rand(2, 2, 6, 4), "v": rand(2, 2, 6, 4)}
BUFFERS = {"past k": rand(2, 2, 5, 4), "past v": rand(2, 2, 5, 4)}
UNUSED = dict.fromkeys(("m", "", "past k", "past v", "n", "beams", "places"))
QUANTISED_IMAGE = {"x": whole(1, 5, 5, 2), "xs": SCALE, "xz": ZERO}
FILTER = {"w": whole(3, 2, 3, 3), "ws": SCALE, "wz": ZERO}
TABLE = {"d": whole(5, 16), "i": np.array([[0, 4, 2]]), "s": rand(5, 2)}
CROPS = {
    "x": rand(2, 3, 6, 7),
    "r": np.array([[0, 0, 1, 1.5], [0.3, 0.9, 0.8, 0.1]], np.float32),
    "b": np.array([1, 0], np.int32),
}
EXPERTS = {
    "x": rand(4, 8),
    "p": rand(4, 3),
    "f1": rand(3, 16, 8),
    "b1": rand(3, 16),
    "f2": rand(3, 8, 16),
    "b2": rand(3, 8),
}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], int | tuple[int, ...]]] = [
    ("Attention", {"x": X, "w": W, "b": B, "m": np.array([3, 5], np.int32)}, {"num_heads": 2}, 1),
    (
        "Attention",
        {"x": X, "w": W, "b": B, "": None, "past": rand(2, 2, 2, 3, 4)},
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    ("RotaryEmbedding", {"x": rand(2, 5, 12), "p": PLACES, **TABLES}, {}, 1),
    ("RotaryEmbedding", {"x": rand(2, 3, 5, 6), "p": np.array([2]), **TABLES}, {}, 1),
    ("RotaryEmbedding", {"x": rand(2, 5, 12), "p": PLACES, **TABLES}, {"interleaved": 1}, 1),
    (
        "DynamicQuantizeLSTM",
        {
            **LAYER,
            "n": np.array([5, 3], np.int32),
            **STATES,
            "ws": SCALE[None],
            "wz": ZERO[None],
            "rs": SCALE[None],
            "rz": ZERO[None],
        },
        {"hidden_size": 4},
        3,
    ),
    (
        "DynamicQuantizeLSTM",
        {
            **BOTH,
            " n": None,
            " h": None,
            " c": None,
            " p": None,
            "ws": SCALE * rand(2, 16) ** 2,
            "wz": np.full((2, 16), ZERO),
            "rs": SCALE * rand(2, 16) ** 2,
            "rz": np.full((2, 16), ZERO),
        },
        {"hidden_size": 4, "direction": "bidirectional"},
        3,
    ),
    (
        "EmbedLayerNormalization",
        {
            "ids": np.array([[1, 4, 2], [0, 3, 3]], np.int32),
            "": None,
            "words": rand(5, 4),
            "places": rand(3, 4),
            " segments": None,
            "gamma": rand(4),
            "beta": rand(4),
        },
        {},
        2,
    ),
    ("GroupQueryAttention", grouped(5, 0, [5, 5], 5), HEADS, 3),
    ("GroupQueryAttention", grouped(2, 3, [5], 5), {**HEADS, "scale": 0.3}, 3),
    ("GroupQueryAttention", grouped(1, 8, [5, 7], 7), HEADS, 3),
    ("GroupQueryAttention", grouped(1, 8, [5, 7], 7, packed=True), HEADS, 3),
    ("GroupQueryAttention", {**grouped(1, 8, [5, 7], 7), **TURNS}, {**HEADS, "do_rotary": 1}, 3),
    (
        "GroupQueryAttention",
        {**grouped(4, 0, [4, 4], 4, packed=True), **TURNS},
        {**HEADS, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 2},
        3,
    ),
    ("GroupQueryAttention", grouped(3, 4, [7], 7), {**HEADS, "softcap": 2.0}, 3),
    ("GroupQueryAttention", grouped(3, 4, [7], 7), {**HEADS, "smooth_softmax": 1}, 3),
    (
        "GroupQueryAttention",
        {**grouped(1, 8, [5, 7], 7), **dict.fromkeys(("c", "s", "p", "b")), "sink": rand(4)},
        {**HEADS, "softcap": 3.0, "local_window_size": 2},
        3,
    ),
    ("Trilu", {"x": rand(2, 4, 5)}, {}, 1),
    ("Trilu", {"x": rand(4, 5), "k": np.array(-1)}, {"upper": 0}, 1),
    ("ExpandDims", {"x": rand(2, 3), "axis": np.array(-1, np.int32)}, {}, 1),
    ("CDist", {"a": rand(4, 3), "b": rand(5, 3)}, {"metric": "euclidean"}, 1),
    ("CDist", {"a": rand(4, 3), "b": rand(1, 3)}, {"metric": "sqeuclidean"}, 1),
    *(
        ("NGramRepeatBlock", {"ids": TOKENS[:, :length], "s": rand(2, 6)}, {"ngram_size": size}, 1)
        for length, size in ((9, 3), (9, 2), (9, 1), (2, 3), (3, 3))
    ),
    (
        "ConvTransposeWithDynamicPads",
        {"x": rand(1, 2, 4, 4), "w": rand(2, 3, 3, 3), "pads": np.array([1, 0, 2, 1])},
        {"strides": [2, 2], "output_padding": [1, 0]},
        1,
    ),
    ("QLinearSigmoid", QUANTISED, {}, 1),
    ("QLinearLeakyRelu", QUANTISED, {"alpha": 0.3}, 1),
    ("QLinearGlobalAveragePool", QUANTISED, {}, 1),
    ("QLinearGlobalAveragePool", QUANTISED, {"channels_last": 1}, 1),
    (
        "QLinearConcat",
        {
            **OUT,
            "x": whole(2, 3),
            "xs": SCALE,
            "xz": ZERO,
            "b": whole(2, 4),
            "bs": SCALE,
            "bz": ZERO,
        },
        {"axis": 1},
        1,
    ),
    ("Attention", {**SELF, "m": np.array([3, 5, 1, 0], np.int32)}, {"num_heads": 2}, 1),
    ("Attention", {**SELF, "m": np.array(MASK[:, 0], np.int32)}, {"num_heads": 2}, 1),
    ("Attention", {**SELF, "m": np.array(MASK, np.int32)}, {"num_heads": 2, "scale": 0.4}, 1),
    (
        "Attention",
        {"x": X, "w": W[:, :20], "b": B[:20], " m": None, " p": None, "bias": rand(2, 2, 5, 5)},
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4], "do_rotary": 0},
        1,
    ),
    ("BiasGelu", {"x": X, "b": rand(12)}, {}, 1),
    ("FastGelu", {"x": X, "b": rand(12)}, {}, 1),
    ("FastGelu", {"x": X}, {}, 1),
    ("Gelu", {"x": X}, {}, 1),
    ("QuickGelu", {"x": X}, {}, 1),
    ("QuickGelu", {"x": X}, {"alpha": 0.7}, 1),
    ("FusedMatMul", {"a": X, "b": W}, {"alpha": 0.5}, 1),
    ("FusedMatMul", {"a": rand(2, 4, 3), "b": rand(2, 5, 4)}, {"transA": 1, "transB": 1}, 1),
    ("FusedMatMul", {"a": rand(4, 2, 3), "b": rand(2, 3, 5)}, {"transBatchA": 1}, 1),
    (
        "FusedMatMul",
        {"a": rand(2, 3, 4), "b": rand(5, 2, 4)},
        {"transBatchB": 1, "transB": 1, "alpha": 2.0},
        1,
    ),
    ("TransposeMatMul", {"a": rand(4, 3), "b": rand(4, 5)}, {"transA": 1}, 1),
    ("FusedGemm", {"a": rand(3, 4), "b": rand(4, 5), "c": rand(5)}, {"activation": "Relu"}, 1),
    (
        "FusedGemm",
        {"a": rand(3, 4), "b": rand(5, 4)},
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4, "transB": 1},
        1,
    ),
    *(
        ("FusedConv", IMAGE, {"activation": name, **parameters}, 1)
        for name, parameters in (
            *(("Relu", {}), ("Sigmoid", {}), ("Tanh", {})),
            ("LeakyRelu", {"activation_params": [0.2]}),
            ("Clip", {"activation_params": [-0.5, 0.5]}),
            ("HardSigmoid", {"activation_params": [0.3, 0.4]}),
        )
    ),
    ("FusedConv", {**IMAGE, "b": rand(4), "z": rand(1, 4, 5, 5)}, {"pads": [1] * 4}, 1),
    ("SkipLayerNormalization", {"x": X, "s": rand(2, 5, 12), "g": rand(12)}, {}, 1),
    (
        "SkipLayerNormalization",
        {"x": X, "s": rand(2, 5, 12), "g": rand(12), "b": rand(12), "c": rand(12)},
        {"epsilon": 1e-3},
        (0, 1, 2, 3),
    ),
    ("SkipSimplifiedLayerNormalization", {"x": X, "s": rand(2, 5, 12), "g": rand(12)}, {}, 1),
    (
        "SkipSimplifiedLayerNormalization",
        {"x": X, "s": rand(2, 5, 12), "g": rand(12), "b": rand(12)},
        {},
        (0, 3),
    ),
    (
        "EmbedLayerNormalization",
        {
            "ids": np.array([[1, 4, 2], [0, 3, 3]], np.int32),
            "segments": np.array([[0, 1, 1], [1, 0, 0]], np.int32),
            "words": rand(5, 4),
            "places": rand(3, 4),
            "kinds": rand(2, 4),
            "gamma": rand(4),
            "beta": rand(4),
            "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            "at": np.array([[2, 1, 0], [0, 0, 1]], np.int32),
        },
        {},
        2,
    ),
    ("MultiHeadAttention", HEADED, {"num_heads": 3}, 1),
    ("MultiHeadAttention", {**HEADED, "b": rand(36)}, {"num_heads": 3, "scale": 0.2}, 1),
    (
        "MultiHeadAttention",
        {**HEADED, "": None, "m": np.array([5, 3], np.int32)},
        {"num_heads": 3, "mask_filter_value": -1e4},
        1,
    ),
    (
        "MultiHeadAttention",
        {**HEADED, "": None, " m": None, "bias": rand(1, 3, 5, 5)},
        {"num_heads": 3, "unidirectional": 1},
        1,
    ),
    (
        "MultiHeadAttention",
        {
            **HEADED,
            "": None,
            " m": None,
            " b": None,
            "pk": rand(2, 3, 4, 4),
            "pv": rand(2, 3, 4, 4),
        },
        {"num_heads": 3},
        3,
    ),
    (
        "MultiHeadAttention",
        {"q": rand(2, 5, 12), "k": rand(2, 3, 4, 4), "v": rand(2, 3, 4, 4)},
        {"num_heads": 3},
        1,
    ),
    ("RotaryEmbedding", {"x": rand(2, 5, 12), "p": PLACES, **TABLES}, {"num_heads": 2}, 1),
    ("MatMulNBits", {"a": rand(2, 40), **BLOCKS}, SIZES, 1),
    ("MatMulNBits", {"a": rand(2, 40), "b": whole(3, 3, 4), "s": rand(9)}, {**SIZES, "bits": 2}, 1),
    ("MatMulNBits", {"a": rand(2, 40), **BLOCKS, "z": whole(3 * 2)}, SIZES, 1),
    ("MatMulNBits", {"a": rand(2, 40), **BLOCKS, "z": rand(3 * 3)}, SIZES, 1),
    ("MatMulNBits", {"a": rand(2, 40), **BLOCKS, "": None, " g": None, "bias": rand(3)}, SIZES, 1),
    (
        "MatMulNBits",
        {"a": rand(2, 40), "b": whole(3, 3, 16), "s": rand(3 * 3)},
        {**SIZES, "bits": 8},
        1,
    ),
    ("DynamicQuantizeMatMul", {"a": rand(3, 4), "b": whole(4, 5), "s": SCALE, "z": ZERO}, {}, 1),
    (
        "DynamicQuantizeMatMul",
        {"a": rand(3, 4), "b": whole(4, 5), "s": SCALE, "": None, "bias": rand(5)},
        {},
        1,
    ),
    ("MatMulIntegerToFloat", {"a": whole(3, 4), "b": whole(4, 5), "as": SCALE, "bs": SCALE}, {}, 1),
    (
        "MatMulIntegerToFloat",
        {
            "a": whole(3, 4),
            "b": whole(4, 5),
            "as": SCALE,
            "bs": rand(5) ** 2,
            "az": ZERO,
            "bz": whole(5),
            "bias": rand(5),
        },
        {},
        1,
    ),
    ("QGemm", {**PRODUCT, "c": np.arange(5, dtype=np.int32) * 900, **OUT}, {"alpha": 0.5}, 1),
    ("QGemm", PRODUCT, {}, 1),
    (
        "QGemm",
        {**PRODUCT, "b": whole(5, 4), "bs": rand(5) ** 2, "bz": whole(5), "": None, **OUT},
        {"transB": 1},
        1,
    ),
    ("QLinearAdd", PAIR, {}, 1),
    ("QLinearMul", PAIR, {}, 1),
    ("QLinearAveragePool", QUANTISED, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}, 1),
    (
        "QLinearAveragePool",
        QUANTISED,
        {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1},
        1,
    ),
    (
        "QLinearAveragePool",
        QUANTISED,
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
        1,
    ),
    (
        "QLinearSoftmax",
        {**QUANTISED, "ys": np.float32(1 / 256), "yz": np.uint8(0)},
        {"opset": 13},
        1,
    ),
    (
        "QLinearWhere",
        {
            "c": np.array([[True], [False]]),
            "a": whole(2, 3),
            "as": SCALE,
            "az": ZERO,
            "b": whole(2, 3),
            "bs": SCALE,
            "bz": ZERO,
            **OUT,
        },
        {},
        1,
    ),
    ("QuantizeLinear", {"x": rand(2, 3), "s": SCALE, "z": np.uint16(300)}, {}, 1),
    ("DequantizeLinear", {"x": whole(2, 3), "s": rand(3) ** 2, "z": whole(3)}, {"axis": 1}, 1),
    (
        "QAttention",
        {
            "x": whole(2, 5, 12),
            "w": whole(12, 24),
            "b": B,
            "xs": SCALE,
            "ws": SCALE / 4,
            "m": np.array([3, 5], np.int32),
            "xz": ZERO,
            "wz": ZERO,
        },
        {"num_heads": 2},
        1,
    ),
    ("Inverse", {"x": rand(2, 4, 4)}, {}, 1),
    ("Inverse", {"x": rand(4, 4).astype(np.float64)}, {}, 1),
    (
        "MatMulInteger16",
        {"a": np.array([[300, -2]], np.int16), "b": np.array([[30000], [7]], np.int16)},
        {},
        1,
    ),
    ("Unique", {"x": np.array([2, 1, 1, 3, 4, 3], np.float32)}, {}, 3),
    ("UnfoldTensor", {"x": rand(2, 7, 3)}, {"dim": 1, "size": 3, "step": 2}, 1),
    ("UnfoldTensor", {"x": rand(2, 7)}, {"size": 2}, 1),
    ("Range", {"a": np.array([1]), "b": np.array([5])}, {}, 1),
    ("Range", {"a": np.array(1.5), "b": np.array(5.0), "c": np.array(2.0)}, {}, 1),
    ("Pad", {"x": rand(2, 3), "p": np.array([0, 1, 1, 0]), "v": np.float32(2)}, {}, 1),
    ("GatherND", {"x": rand(2, 3), "i": np.array([[0, 2], [1, -1]])}, {}, 1),
    ("GridSample", {"x": rand(1, 2, 3, 3), "g": rand(1, 2, 2, 2)}, {"mode": "bilinear"}, 1),
    ("ScaledSiLU", {"x": X}, {"alpha": 0.5}, 1),
    ("ScaledSiLU", {"x": X, "s": np.array(2.0, np.float32)}, {}, 1),
    ("GatedAdd", {"x": X, "y": rand(2, 5, 12), "g": rand(2, 5, 1)}, {}, 1),
    ("GatedRMSNorm", {"x": X, "s": rand(4), "g": rand(2, 5, 12)}, {"epsilon": 1e-5}, 1),
    ("GatedRMSNorm", {"x": X, "s": rand(12), "g": X}, {"activation": "sigmoid"}, 1),
    (
        "LinearAttentionGate",
        {"a": rand(2, 3, 4), "d": rand(4), "s": rand(4), "b": rand(2, 3, 4)},
        {},
        2,
    ),
    ("LinearAttentionGate", {"a": rand(2, 3, 4), "d": rand(4), "s": rand(4)}, {}, 1),
    (
        "CausalConvWithState",
        {"x": rand(2, 3, 5), "w": rand(3, 1, 4), "b": rand(3), "past": rand(2, 3, 3)},
        {"activation": "silu"},
        2,
    ),
    (
        "LinearAttention",
        {
            **{name: rand(2, 3, 8) for name in "qkv"},
            "past": rand(2, 2, 4, 4),
            "decay": -np.abs(rand(2, 3, 2)),
            "beta": rand(2, 3, 2),
        },
        {"q_num_heads": 2, "kv_num_heads": 2},
        2,
    ),
    *(
        (
            "MRotaryEmbedding",
            {"x": rand(*shape), "p": RNG.integers(0, 5, (3, 2, 3)), "c": ROTATE[0], "s": ROTATE[1]},
            {"mrope_section": [2, 1, 1], **options},
            1,
        )
        for shape, options in (
            ((2, 3, 16), {"num_heads": 2}),
            ((2, 3, 16), {"num_heads": 2, "mrope_layout": 1}),
            ((2, 2, 3, 8), {"interleaved": 1}),
        )
    ),
    ("DecoderMaskedMultiHeadAttention", STEP, {"num_heads": 2}, 1),
    ("DecoderMaskedMultiHeadAttention", {**STEP, **ENCODED}, {"num_heads": 2}, 1),
    (
        "DecoderMaskedMultiHeadAttention",
        {**STEP, **ENCODED, **UNUSED, "bias": rand(24)},
        {"num_heads": 2, "scale": 0.3},
        1,
    ),
    *(
        (
            "DecoderMaskedMultiHeadAttention",
            {**STEP, "m": mask, "": None, **BUFFERS, "n": np.array([3], np.int32), **more},
            {"num_heads": 2, "past_present_share_buffer": 1},
            3,
        )
        for mask, more in (
            (None, {}),
            (np.array([[1, 1, 0, 1], [0, 1, 1, 1]], np.int32), {}),
            (None, {"beams": None, "places": None, "bias": rand(24)}),
        )
    ),
    *(
        ("CropAndResize", {**CROPS, "n": np.array(size, np.int32)}, options, 1)
        for size, options in (
            ((3, 4), {"extrapolation_value": 2.0}),
            ((1, 5), {}),
            ((3, 3), {"mode": "nearest"}),
        )
    ),
    (
        "NhwcMaxPool",
        {"x": whole(1, 6, 7, 2)},
        {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 0, 1]},
        1,
    ),
    ("QLinearConv", {**QUANTISED_IMAGE, **FILTER, **OUT}, {"channels_last": 1, "group": 1}, 1),
    (
        "QLinearAveragePool",
        QUANTISED,
        {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "channels_last": 1},
        1,
    ),
    *(
        ("GatherBlockQuantized", {**TABLE, **zeros}, options, 1)
        for zeros, options in (
            ({}, {"bits": 4, "block_size": 16}),
            ({"z": whole(5, 1)}, {"bits": 4, "block_size": 16, "quantize_axis": -1}),
            ({"z": whole(5, 1), "s": rand(5, 1)}, {"bits": 8, "block_size": 16}),
        )
    ),
    *(
        ("MoE", {**EXPERTS, **more}, {"k": 2, **options}, 1)
        for more, options in (
            ({}, {"activation_type": "gelu"}),
            ({"b1": None, "f2": rand(3, 8, 16), "b2": None}, {"activation_type": "silu"}),
            ({}, {"activation_type": "relu", "normalize_routing_weights": 1}),
            (
                {"f2": rand(3, 8, 8)},
                {
                    "activation_type": "swiglu",
                    "swiglu_fusion": 1,
                    "activation_alpha": 1.702,
                    "activation_beta": 1.0,
                    "swiglu_limit": 1.0,
                },
            ),
        )
    ),
]


def _model(
    op: str,
    operands: dict[str, Any],
    arrays: dict[str, Array],
    attributes: dict[str, Any],
    names: list[str],
) -> Any:
    code = helper.np_dtype_to_tensor_dtype
    given = [name if name in arrays else "" for name in operands]
    graph = helper.make_graph(
        [helper.make_node(op, given, names, domain="com.microsoft", **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, code(a.dtype), a.shape) for n, a in arrays.items()],
        [onnx.ValueInfoProto(name=name) for name in names if name],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "outputs"),
    CASES,
    ids=[f"{c[0]}{k}" for k, c in enumerate(CASES)],
)
def test_fused_operators(op, operands, attributes, outputs) -> None:
    """`outputs`: how many, or which of them."""
    which = range(outputs) if isinstance(outputs, int) else outputs
    names = [f"y{k}" if k in which else "" for k in range(max(which) + 1)]
    arrays = {name: np.asarray(array) for name, array in operands.items() if array is not None}
    proto = _model(op, operands, arrays, attributes, names)
    one_thread = ort.SessionOptions()  # each thread rounds the states of its sequences by itself
    one_thread.intra_op_num_threads = 1
    expected = ort.InferenceSession(proto.SerializeToString(), one_thread).run(None, arrays)
    mod = from_onnx(proto)
    for target in targets(f"{op} {attributes} {[*operands]}"):
        found = relaxpy.compile(mod, target)["main"](*arrays.values())
        for a, b in zip(found if len(expected) > 1 else [found], expected, strict=True):
            assert np.asarray(a).dtype == b.dtype
            if b.dtype.kind == "u":
                assert np.abs(np.asarray(a, int) - np.asarray(b, int)).max() <= 1
            else:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("zero", [0, 120])
def test_constant_weights_in_8_bits_are_not_dequantised(zero: int) -> None:
    points = {"wz": np.array([zero], np.uint8), "rz": np.array([zero], np.uint8)}
    scales = {"ws": SCALE[None], "rs": SCALE[None]}
    operands = {**LAYER, **dict.fromkeys(("n", "h", "c", "p"))}
    order = {**operands, "ws": None, "wz": None, "rs": None, "rz": None}
    arrays = {k: v for k, v in {**operands, **scales, **points}.items() if v is not None}
    proto = _model("DynamicQuantizeLSTM", order, arrays, {"hidden_size": 4}, ["y"])
    x = arrays.pop("x")
    del proto.graph.input[1:]
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in arrays.items())
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    [expected] = ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    for target in ("native", "numpy"):
        found = relaxpy.compile(from_onnx(proto), target)["main"](x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("Attention", {"x": X, "w": W}, {"num_heads": 2, "do_rotary": 1}, "'do_rotary' is 1"),
        ("Attention", {**SELF, "m": np.zeros(3, np.int32)}, {"num_heads": 2}, "3 numbers for 2"),
        ("Attention", {**SELF, "m": np.zeros((1,) * 5, np.int32)}, {"num_heads": 2}, "rank 5"),
        ("MultiHeadAttention", HEADED, {"num_heads": 5}, "12 is not a multiple of 5 heads"),
        ("FusedConv", IMAGE, {"activation": "Glow"}, "the activation 'Glow'"),
        ("FusedGemm", {"a": X[0], "b": W}, {"activation": "Relu", "activation_alpha": 1.0}, "Relu"),
        ("RotaryEmbedding", {"x": X, "p": PLACES, **TABLES}, {"is_packed_batching": 1}, "packed"),
        ("MatMulNBits", {"a": rand(2, 40), **BLOCKS}, {**SIZES, "bits": 3}, "2, 4 or 8 bits"),
        ("QLinearSigmoid", {"x": whole(2)}, {}, "it has 1 operands, expected 4 or 5"),
        ("QLinearSigmoid", {"x": whole(2), "": None, "z": ZERO, "s": SCALE}, {}, "a scale"),
        (
            "GroupQueryAttention",
            grouped(1, 8, [5, 7], 7),
            {**HEADS, "do_rotary": 1},
            "do_rotary needs cos_cache",
        ),
        ("CDist", {"a": rand(4, 3), "b": rand(5, 3)}, {"metric": "cosine"}, "metric' is 'cosine'"),
        ("GatedRMSNorm", {"x": X, "s": rand(4), "g": X}, {"activation": "elu"}, "'elu'"),
        (
            "DecoderMaskedMultiHeadAttention",
            {**STEP, "m": None, "": None, **BUFFERS},
            {"num_heads": 2},
            "past_present_share_buffer only",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            {**STEP, **UNUSED, "beams": np.array([2], np.int32)},
            {"num_heads": 2},
            "caches of beams",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            {"qkv": rand(2, 1, 24)},
            {"num_heads": 2},
            "packed into one",
        ),
        ("CropAndResize", {**CROPS, "n": np.array([3, 3])}, {"mode": "cubic"}, "'cubic'"),
        ("GatherBlockQuantized", TABLE, {"quantize_axis": 0, "block_size": 16}, "axis of the ind"),
        ("MoE", EXPERTS, {"activation_type": "geglu"}, "'geglu'"),
        ("MoE", EXPERTS, {"activation_type": "swiglu"}, "fc3_experts_weights or swiglu_fusion"),
        (
            "SimplifiedLayerNormalization",
            {"x": X, "g": rand(12)},
            {"axis": 1},
            "axis 1 is not the last one",
        ),
    ],
)
def test_what_is_not_imported_is_named(op, operands, attributes, message) -> None:
    arrays = {name: np.asarray(array) for name, array in operands.items() if array is not None}
    with pytest.raises(NotImplementedError, match=message):
        from_onnx(_model(op, operands, arrays, attributes, ["y"]))


def test_an_optional_result_that_is_not_computed_is_named() -> None:
    arrays = {"x": X, "s": X, "g": rand(12)}
    proto = _model("SkipSimplifiedLayerNormalization", arrays, arrays, {}, ["y", "mean"])
    with pytest.raises(FrontendError, match="does not compute this optional result"):
        from_onnx(proto)


def test_dimensions_of_length_one_are_known_where_their_position_is() -> None:
    node = node_of("y = com.microsoft::ExpandDims(x, axis)")
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.array(1, np.int32), "axis")],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    mod = from_onnx(helper.make_model(graph, opset_imports=imports, ir_version=9))
    assert str(mod["main"].struct_info.ret.shape) == "R.shape([n, 1, 3])"
