"""Operators of the domain com.microsoft, as ONNX Runtime computes them."""

import ast
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.runtime import agree, check, results
from tests.plugins.onnx.texts import Row, ids, one, rows_of

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
ROTATED = {"p": RNG.integers(0, 5, (3, 2, 3)), "c": rand(5, 4), "s": rand(5, 4)}
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

SHARED = {"num_heads": 2, "past_present_share_buffer": 1}
BUFFERED = {"": None, **BUFFERS, "n": np.array([3], np.int32)}

#: Rows end with the number of outputs, or with which of them there are.
CASES = rows_of(
    """
Attention(num_heads=2) <- x=X, w=W, b=B, m=np.array([3, 5], np.int32)
Attention(num_heads=2, unidirectional=1) <- x=X, w=W, b=B, _=None, past=rand(2, 2, 2, 3, 4) => 2
RotaryEmbedding <- x=rand(2, 5, 12), p=PLACES, **TABLES
RotaryEmbedding <- x=rand(2, 3, 5, 6), p=np.array([2]), **TABLES
RotaryEmbedding(interleaved=1) <- x=rand(2, 5, 12), p=PLACES, **TABLES
DynamicQuantizeLSTM(hidden_size=4) <- **LAYER, n=np.array([5, 3], np.int32), **STATES,
    ws=SCALE[None], wz=ZERO[None], rs=SCALE[None], rz=ZERO[None] => 3
DynamicQuantizeLSTM(hidden_size=4, direction="bidirectional") <- **BOTH, _n=None, _h=None,
    _c=None, _p=None, ws=SCALE * rand(2, 16) ** 2, wz=np.full((2, 16), ZERO), rs=SCALE * rand(2,
    16) ** 2, rz=np.full((2, 16), ZERO) => 3
EmbedLayerNormalization <- ids=np.array([[1, 4, 2], [0, 3, 3]], np.int32), _=None, words=rand(5,
    4), places=rand(3, 4), _segments=None, gamma=rand(4), beta=rand(4) => 2
GroupQueryAttention(**HEADS) <- **grouped(5, 0, [5, 5], 5) => 3
GroupQueryAttention(**HEADS, scale=0.3) <- **grouped(2, 3, [5], 5) => 3
GroupQueryAttention(**HEADS) <- **grouped(1, 8, [5, 7], 7) => 3
GroupQueryAttention(**HEADS) <- **grouped(1, 8, [5, 7], 7, packed=True) => 3
GroupQueryAttention(**HEADS, do_rotary=1) <- **grouped(1, 8, [5, 7], 7), **TURNS => 3
GroupQueryAttention(**HEADS, do_rotary=1, rotary_interleaved=1, local_window_size=2) <-
    **grouped(4, 0, [4, 4], 4, packed=True), **TURNS => 3
GroupQueryAttention(**HEADS, softcap=2.0) <- **grouped(3, 4, [7], 7) => 3
GroupQueryAttention(**HEADS, smooth_softmax=1) <- **grouped(3, 4, [7], 7) => 3
GroupQueryAttention(**HEADS, softcap=3.0, local_window_size=2) <- **grouped(1, 8, [5, 7], 7),
    **dict.fromkeys(("c", "s", "p", "b")), sink=rand(4) => 3
Trilu <- x=rand(2, 4, 5)
Trilu(upper=0) <- x=rand(4, 5), k=np.array(-1)
ExpandDims <- x=rand(2, 3), axis=np.array(-1, np.int32)
CDist(metric="euclidean") <- a=rand(4, 3), b=rand(5, 3)
CDist(metric="sqeuclidean") <- a=rand(4, 3), b=rand(1, 3)
NGramRepeatBlock(ngram_size=3) <- ids=TOKENS, s=rand(2, 6)
NGramRepeatBlock(ngram_size=2) <- ids=TOKENS, s=rand(2, 6)
NGramRepeatBlock(ngram_size=1) <- ids=TOKENS, s=rand(2, 6)
NGramRepeatBlock(ngram_size=3) <- ids=TOKENS[:, :2], s=rand(2, 6)
NGramRepeatBlock(ngram_size=3) <- ids=TOKENS[:, :3], s=rand(2, 6)
ConvTransposeWithDynamicPads(strides=[2, 2], output_padding=[1, 0]) <- x=rand(1, 2, 4, 4),
    w=rand(2, 3, 3, 3), pads=np.array([1, 0, 2, 1])
QLinearSigmoid <- **QUANTISED
QLinearLeakyRelu(alpha=0.3) <- **QUANTISED
QLinearGlobalAveragePool <- **QUANTISED
QLinearGlobalAveragePool(channels_last=1) <- **QUANTISED
QLinearConcat(axis=1) <- **OUT, x=whole(2, 3), xs=SCALE, xz=ZERO, b=whole(2, 4), bs=SCALE, bz=ZERO
Attention(num_heads=2) <- **SELF, m=np.array([3, 5, 1, 0], np.int32)
Attention(num_heads=2) <- **SELF, m=np.array(MASK[:, 0], np.int32)
Attention(num_heads=2, scale=0.4) <- **SELF, m=np.array(MASK, np.int32)
Attention(num_heads=2, qkv_hidden_sizes=[8, 8, 4], do_rotary=0) <- x=X, w=W[:, :20], b=B[:20],
    _m=None, _p=None, bias=rand(2, 2, 5, 5)
BiasGelu <- x=X, b=rand(12)
FastGelu <- x=X, b=rand(12)
FastGelu <- x=X
Gelu <- x=X
QuickGelu <- x=X
QuickGelu(alpha=0.7) <- x=X
FusedMatMul(alpha=0.5) <- a=X, b=W
FusedMatMul(transA=1, transB=1) <- a=rand(2, 4, 3), b=rand(2, 5, 4)
FusedMatMul(transBatchA=1) <- a=rand(4, 2, 3), b=rand(2, 3, 5)
FusedMatMul(transBatchB=1, transB=1, alpha=2.0) <- a=rand(2, 3, 4), b=rand(5, 2, 4)
TransposeMatMul(transA=1) <- a=rand(4, 3), b=rand(4, 5)
FusedGemm(activation="Relu") <- a=rand(3, 4), b=rand(4, 5), c=rand(5)
FusedGemm(activation="HardSigmoid", activation_alpha=0.3, activation_beta=0.4, transB=1) <-
    a=rand(3, 4), b=rand(5, 4)
FusedConv(activation="Relu") <- **IMAGE
FusedConv(activation="Sigmoid") <- **IMAGE
FusedConv(activation="Tanh") <- **IMAGE
FusedConv(activation="LeakyRelu", activation_params=[0.2]) <- **IMAGE
FusedConv(activation="Clip", activation_params=[-0.5, 0.5]) <- **IMAGE
FusedConv(activation="HardSigmoid", activation_params=[0.3, 0.4]) <- **IMAGE
FusedConv(pads=[1] * 4) <- **IMAGE, b=rand(4), z=rand(1, 4, 5, 5)
SkipLayerNormalization <- x=X, s=rand(2, 5, 12), g=rand(12)
SkipLayerNormalization(epsilon=0.001) <- x=X, s=rand(2, 5, 12), g=rand(12), b=rand(12), c=rand(12)
    => (0, 1, 2, 3)
SkipSimplifiedLayerNormalization <- x=X, s=rand(2, 5, 12), g=rand(12)
SkipSimplifiedLayerNormalization <- x=X, s=rand(2, 5, 12), g=rand(12), b=rand(12) => (0, 3)
EmbedLayerNormalization <- ids=np.array([[1, 4, 2], [0, 3, 3]], np.int32), segments=np.array([[0,
    1, 1], [1, 0, 0]], np.int32), words=rand(5, 4), places=rand(3, 4), kinds=rand(2, 4),
    gamma=rand(4), beta=rand(4), mask=np.array([[1, 1, 0], [1, 1, 1]], np.int32), at=np.array([[2,
    1, 0], [0, 0, 1]], np.int32) => 2
MultiHeadAttention(num_heads=3) <- **HEADED
MultiHeadAttention(num_heads=3, scale=0.2) <- **HEADED, b=rand(36)
MultiHeadAttention(num_heads=3, mask_filter_value=-10000.0) <- **HEADED, _=None, m=np.array([5,
    3], np.int32)
MultiHeadAttention(num_heads=3, unidirectional=1) <- **HEADED, _=None, _m=None, bias=rand(1, 3, 5,
    5)
MultiHeadAttention(num_heads=3) <- **HEADED, _=None, _m=None, _b=None, pk=rand(2, 3, 4, 4),
    pv=rand(2, 3, 4, 4) => 3
MultiHeadAttention(num_heads=3) <- q=rand(2, 5, 12), k=rand(2, 3, 4, 4), v=rand(2, 3, 4, 4)
RotaryEmbedding(num_heads=2) <- x=rand(2, 5, 12), p=PLACES, **TABLES
MatMulNBits(**SIZES) <- a=rand(2, 40), **BLOCKS
MatMulNBits(**SIZES, bits=2) <- a=rand(2, 40), b=whole(3, 3, 4), s=rand(9)
MatMulNBits(**SIZES) <- a=rand(2, 40), **BLOCKS, z=whole(3 * 2)
MatMulNBits(**SIZES) <- a=rand(2, 40), **BLOCKS, z=rand(3 * 3)
MatMulNBits(**SIZES) <- a=rand(2, 40), **BLOCKS, _=None, _g=None, bias=rand(3)
MatMulNBits(**SIZES, bits=8) <- a=rand(2, 40), b=whole(3, 3, 16), s=rand(3 * 3)
DynamicQuantizeMatMul <- a=rand(3, 4), b=whole(4, 5), s=SCALE, z=ZERO
DynamicQuantizeMatMul <- a=rand(3, 4), b=whole(4, 5), s=SCALE, _=None, bias=rand(5)
MatMulIntegerToFloat <- a=whole(3, 4), b=whole(4, 5), a_s=SCALE, bs=SCALE
MatMulIntegerToFloat <- a=whole(3, 4), b=whole(4, 5), a_s=SCALE, bs=rand(5) ** 2, az=ZERO,
    bz=whole(5), bias=rand(5)
QGemm(alpha=0.5) <- **PRODUCT, c=np.arange(5, dtype=np.int32) * 900, **OUT
QGemm <- **PRODUCT
QGemm(transB=1) <- **PRODUCT, b=whole(5, 4), bs=rand(5) ** 2, bz=whole(5), _=None, **OUT
QLinearAdd <- **PAIR
QLinearMul <- **PAIR
QLinearAveragePool(kernel_shape=[2, 3], pads=[1, 1, 0, 1]) <- **QUANTISED
QLinearAveragePool(kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1) <- **QUANTISED
QLinearAveragePool(kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1) <- **QUANTISED
QLinearSoftmax(opset=13) <- **QUANTISED, ys=np.float32(1 / 256), yz=np.uint8(0)
QLinearWhere <- c=np.array([[True], [False]]), a=whole(2, 3), a_s=SCALE, az=ZERO, b=whole(2, 3),
    bs=SCALE, bz=ZERO, **OUT
QuantizeLinear <- x=rand(2, 3), s=SCALE, z=np.uint16(300)
DequantizeLinear(axis=1) <- x=whole(2, 3), s=rand(3) ** 2, z=whole(3)
QAttention(num_heads=2) <- x=whole(2, 5, 12), w=whole(12, 24), b=B, xs=SCALE, ws=SCALE / 4,
    m=np.array([3, 5], np.int32), xz=ZERO, wz=ZERO
Inverse <- x=rand(2, 4, 4)
Inverse <- x=rand(4, 4).astype(np.float64)
Inverse <- x=np.array([np.diag([3, 0, 2]), [[1, 2, 4], [2, 4, 8], [1, 1, 1]], 2 * np.eye(3)], "f")
MatMulInteger16 <- a=np.array([[300, -2]], np.int16), b=np.array([[30000], [7]], np.int16)
Unique <- x=np.array([2, 1, 1, 3, 4, 3], np.float32) => 3
UnfoldTensor(dim=1, size=3, step=2) <- x=rand(2, 7, 3)
UnfoldTensor(size=2) <- x=rand(2, 7)
Range <- a=np.array([1]), b=np.array([5])
Range <- a=np.array(1.5), b=np.array(5.0), c=np.array(2.0)
Pad <- x=rand(2, 3), p=np.array([0, 1, 1, 0]), v=np.float32(2)
GatherND <- x=rand(2, 3), i=np.array([[0, 2], [1, -1]])
GridSample(mode="bilinear") <- x=rand(1, 2, 3, 3), g=rand(1, 2, 2, 2)
ScaledSiLU(alpha=0.5) <- x=X
ScaledSiLU <- x=X, s=np.array(2.0, np.float32)
GatedAdd <- x=X, y=rand(2, 5, 12), g=rand(2, 5, 1)
GatedRMSNorm(epsilon=1e-05) <- x=X, s=rand(4), g=rand(2, 5, 12)
GatedRMSNorm(activation="sigmoid") <- x=X, s=rand(12), g=X
LinearAttentionGate <- a=rand(2, 3, 4), d=rand(4), s=rand(4), b=rand(2, 3, 4) => 2
LinearAttentionGate <- a=rand(2, 3, 4), d=rand(4), s=rand(4)
CausalConvWithState(activation="silu") <- x=rand(2, 3, 5), w=rand(3, 1, 4), b=rand(3),
    past=rand(2, 3, 3) => 2
LinearAttention(q_num_heads=2, kv_num_heads=2) <- **{name: rand(2, 3, 8) for name in "qkv"},
    past=rand(2, 2, 4, 4), decay=-np.abs(rand(2, 3, 2)), beta=rand(2, 3, 2) => 2
MRotaryEmbedding(mrope_section=[2, 1, 1], num_heads=2) <- x=rand(2, 3, 16), **ROTATED
MRotaryEmbedding(mrope_section=[2, 1, 1], num_heads=2, mrope_layout=1) <- x=rand(2, 3, 16),
    **ROTATED
MRotaryEmbedding(mrope_section=[2, 1, 1], interleaved=1) <- x=rand(2, 2, 3, 8), **ROTATED
DecoderMaskedMultiHeadAttention(num_heads=2) <- **STEP
DecoderMaskedMultiHeadAttention(num_heads=2) <- **STEP, **ENCODED
DecoderMaskedMultiHeadAttention(num_heads=2, scale=0.3) <- **STEP, **ENCODED, **UNUSED,
    bias=rand(24)
DecoderMaskedMultiHeadAttention(**SHARED) <- **STEP, m=None, **BUFFERED => 3
DecoderMaskedMultiHeadAttention(**SHARED) <- **STEP,
    m=np.array([[1, 1, 0, 1], [0, 1, 1, 1]], np.int32), **BUFFERED => 3
DecoderMaskedMultiHeadAttention(**SHARED) <- **STEP, m=None, **BUFFERED, beams=None, places=None,
    bias=rand(24) => 3
CropAndResize(extrapolation_value=2.0) <- **CROPS, n=np.array([3, 4], np.int32)
CropAndResize <- **CROPS, n=np.array([1, 5], np.int32)
CropAndResize(mode="nearest") <- **CROPS, n=np.array([3, 3], np.int32)
NhwcMaxPool(kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 0, 1]) <- x=whole(1, 6, 7, 2)
QLinearConv(channels_last=1, group=1) <- **QUANTISED_IMAGE, **FILTER, **OUT
QLinearAveragePool(kernel_shape=[2, 3], pads=[1, 1, 0, 1], channels_last=1) <- **QUANTISED
GatherBlockQuantized(bits=4, block_size=16) <- **TABLE
GatherBlockQuantized(bits=4, block_size=16, quantize_axis=-1) <- **TABLE, z=whole(5, 1)
GatherBlockQuantized(bits=8, block_size=16) <- **TABLE, z=whole(5, 1), s=rand(5, 1)
MoE(k=2, activation_type="gelu") <- **EXPERTS
MoE(k=2, activation_type="silu") <- **EXPERTS, b1=None, f2=rand(3, 8, 16), b2=None
MoE(k=2, activation_type="relu", normalize_routing_weights=1) <- **EXPERTS
MoE(k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0,
    swiglu_limit=1.0) <- **EXPERTS, f2=rand(3, 8, 8)
""",
    globals(),
    opset=18,
)
REFUSED = rows_of(
    r"""
Attention(num_heads=2, do_rotary=1) <- x=X, w=W => 'do_rotary' is 1
Attention(num_heads=2) <- **SELF, m=np.zeros(3, np.int32) => 3 numbers for 2
Attention(num_heads=2) <- **SELF, m=np.zeros((1,) * 5, np.int32) => rank 5
MultiHeadAttention(num_heads=5) <- **HEADED => 12 is not a multiple of 5 heads
FusedConv(activation="Glow") <- **IMAGE => the activation 'Glow'
FusedGemm(activation="Relu", activation_alpha=1.0) <- a=X[0], b=W => Relu
RotaryEmbedding(is_packed_batching=1) <- x=X, p=PLACES, **TABLES => packed
MatMulNBits(**SIZES, bits=3) <- a=rand(2, 40), **BLOCKS => 2, 4 or 8 bits
QLinearSigmoid <- x=whole(2) => it has 1 operands, expected 4 or 5
QLinearSigmoid <- x=whole(2), _=None, z=ZERO, s=SCALE => a scale
GroupQueryAttention(**HEADS, do_rotary=1) <- **grouped(1, 8, [5, 7], 7) => do_rotary needs
    cos_cache
CDist(metric="cosine") <- a=rand(4, 3), b=rand(5, 3) => metric' is 'cosine'
GatedRMSNorm(activation="elu") <- x=X, s=rand(4), g=X => 'elu'
DecoderMaskedMultiHeadAttention(num_heads=2) <- **STEP, _m=None, _=None, **BUFFERS =>
    past_present_share_buffer only
DecoderMaskedMultiHeadAttention(num_heads=2) <- **STEP, **UNUSED, beams=np.array([2], np.int32) =>
    caches of beams
DecoderMaskedMultiHeadAttention(num_heads=2) <- qkv=rand(2, 1, 24) => packed into one
CropAndResize(mode="cubic") <- **CROPS, n=np.array([3, 3]) => 'cubic'
GatherBlockQuantized(quantize_axis=0, block_size=16) <- **TABLE => axis of the ind
MoE(activation_type="geglu") <- **EXPERTS => 'geglu'
MoE(activation_type="swiglu") <- **EXPERTS => fc3_experts_weights or swiglu_fusion
SimplifiedLayerNormalization(axis=1) <- x=X, g=rand(12) => axis 1 is not the last one
""",
    globals(),
    opset=18,
)
DOMAIN = {"domain": "com.microsoft"}


def close(found: Any, expected: Any) -> None:
    """Numbers of 8 bits may be rounded to the next one."""
    for a, b in zip(found, expected, strict=True):
        assert np.asarray(a).dtype == b.dtype
        if b.dtype.kind == "u":
            assert np.abs(np.asarray(a, int) - np.asarray(b, int)).max() <= 1
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", CASES, ids=ids(CASES))
def test_fused_operators(row: Row) -> None:
    outputs = ast.literal_eval(row.rest or "1")
    which = range(outputs) if isinstance(outputs, int) else outputs
    names = [f"y{k}" if k in which else "" for k in range(max(which) + 1)]
    check(row.model(outputs=names, **DOMAIN), row.feed(), compare=close)


@pytest.mark.parametrize("zero", [0, 120])
def test_constant_weights_in_8_bits_are_not_dequantised(zero: int) -> None:
    constants = {name: LAYER[name] for name in "wrb"} | dict.fromkeys(("ws", "rs"), SCALE[None])
    constants |= dict.fromkeys(("wz", "rz"), np.array([zero], np.uint8))
    order = [*LAYER, *("n", "h", "c", "p"), *("ws", "wz", "rs", "rz")]
    operands = {f"c_{name}": constants.get(name) for name in order[1:]}
    options = {"opset": 18, "version": 1, **DOMAIN}
    x = LAYER["x"]
    proto = one("DynamicQuantizeLSTM", {"x": x, **operands}, {"hidden_size": 4}, **options)
    for target in ("native", "numpy"):
        found = relaxpy.compile(from_onnx(proto), target)["main"](x)
        agree((found,), results(proto)({"x": x}))


@pytest.mark.parametrize("row", REFUSED, ids=ids(REFUSED))
def test_what_is_not_imported_is_named(row: Row) -> None:
    with pytest.raises(NotImplementedError, match=row.rest):
        from_onnx(row.model(**DOMAIN))


def test_an_optional_result_that_is_not_computed_is_named() -> None:
    operands = {"x": X, "s": X, "g": rand(12)}
    proto = one("SkipSimplifiedLayerNormalization", operands, {}, ["y", "mean"], **DOMAIN)
    with pytest.raises(FrontendError, match="does not compute this optional result"):
        from_onnx(proto)


def test_dimensions_of_length_one_are_known_where_their_position_is() -> None:
    operands = {"x": rand(2, 3), "c_axis": np.array(1, np.int32)}
    mod = from_onnx(one("ExpandDims", operands, {}, sizes={"x": ["n", 3]}, **DOMAIN))
    assert str(mod["main"].struct_info.ret.shape) == "R.shape([n, 1, 3])"
