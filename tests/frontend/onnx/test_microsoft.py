"""Operators of the domain com.microsoft, as ONNX Runtime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(5)


def rand(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


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


CASES: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
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
]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "outputs"),
    CASES,
    ids=[f"{c[0]}{k}" for k, c in enumerate(CASES)],
)
def test_fused_operators(
    op: str, operands: dict[str, Any], attributes: dict[str, Any], outputs: int
) -> None:
    names = [f"y{k}" for k in range(outputs)]
    arrays = {name: np.asarray(array) for name, array in operands.items() if array is not None}
    given = [name if name in arrays else "" for name in operands]
    code = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, given, names, domain="com.microsoft", **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, code(a.dtype), a.shape) for n, a in arrays.items()],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    one_thread = ort.SessionOptions()  # each thread rounds the states of its sequences by itself
    one_thread.intra_op_num_threads = 1
    expected = ort.InferenceSession(proto.SerializeToString(), one_thread).run(None, arrays)
    mod = from_onnx(proto)
    for target in ("native", "numpy"):
        found = relaxpy.compile(mod, target)["main"](*arrays.values())
        for a, b in zip(found if outputs > 1 else [found], expected, strict=True):
            assert np.asarray(a).dtype == b.dtype
            if b.dtype == np.uint8:
                assert np.abs(np.asarray(a, int) - np.asarray(b, int)).max() <= 1
            else:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
