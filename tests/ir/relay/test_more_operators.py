"""Operators of blocks, dynamic shapes, quantised numbers and images beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from tests.ir.relay.test_operators import IMAGE, KERNEL, M, X, program

LENGTHS = np.array([1, 3, 2, 0], "int32")
SQUARE = np.arange(16, dtype="float32").reshape(4, 4)
BATCHES = np.arange(24, dtype="float32").reshape(2, 3, 4)
DEEP = np.arange(32, dtype="float32").reshape(1, 8, 2, 2)
Q = np.array([[-7, 3, 20], [0, 5, -128]], "int8")
HALF, TWO = np.array(0.5, "float32"), np.array(2, "int32")
ZERO, TENTH = np.array(0, "int32"), np.array(0.1, "float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def masked(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(x))[:, None] < lengths, x, -1).astype(x.dtype)


def reversed_rows(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.stack([np.concatenate([r[:n][::-1], r[n:]]) for r, n in zip(x, lengths, strict=True)])


def depth_to_space(x: np.ndarray) -> np.ndarray:
    return x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 4)


def space_to_depth(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def dilated(x: np.ndarray) -> np.ndarray:
    result = np.zeros((5, 4), x.dtype)
    result[::2] = x
    return result


def diagonal(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    result = x.copy()
    np.fill_diagonal(result, d)
    return result


def lrn(x: np.ndarray) -> np.ndarray:
    squares = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return x / (2 + 1e-4 / 3 * total) ** 0.75


def quantized(x: np.ndarray, scale: float, zero: float, dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.round(x / scale) + zero, info.min, info.max).astype(dtype)


def real(q: np.ndarray, scale: Any, zero: Any) -> np.ndarray:
    return (q.astype("float32") - zero) * scale


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", view, w)


QIMAGE, QKERNEL = (IMAGE * 20).astype("int8"), (KERNEL * 20).astype("int8")
CASES: list[tuple[str, tuple[Any, ...], Callable[..., Any]]] = [
    ("sequence_mask(%0, %1, mask_value=-1f)", (SQUARE, LENGTHS), masked),
    ("reverse_sequence", (SQUARE, LENGTHS), reversed_rows),
    ("unravel_index", (ints(5, 7), ints(3, 4)), lambda i, s: np.array(np.unravel_index(i, s))),
    ("searchsorted(%0, %1)", (np.array([1, 2, 4], "float32"), M), np.searchsorted),
    (
        "searchsorted(%0, %1, right=True)",
        (np.array([0, 0, 4], "float32"), np.zeros(2, "float32")),
        lambda s, v: np.searchsorted(s, v, "right"),
    ),
    ("matrix_set_diag", (SQUARE, np.ones(4, "float32")), diagonal),
    (
        "sliding_window(%0, axis=1, window_shape=[2], strides=[2])",
        (SQUARE,),
        lambda x: x.reshape(4, 2, 2),
    ),
    ('reinterpret(%0, dtype="int32")', (M,), lambda x: x.view("int32")),
    (
        'layout_transform(%0, src_layout="NCHW", dst_layout="NHWC")',
        (IMAGE,),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    ("nn.depth_to_space(%0, block_size=2)", (DEEP,), depth_to_space),
    ("nn.space_to_depth(%0, block_size=2)", (IMAGE[:, :, :4, :4],), space_to_depth),
    (
        "nn.space_to_batch_nd(%0, block_shape=[2], paddings=[[0, 1]])",
        (BATCHES,),
        lambda x: (
            np.pad(x, ((0, 0), (0, 1), (0, 0)))
            .reshape(2, 2, 2, 4)
            .transpose(2, 0, 1, 3)
            .reshape(4, 2, 4)
        ),
    ),
    (
        "nn.batch_to_space_nd(%0, block_shape=[2], crops=[[0, 1]])",
        (BATCHES,),
        lambda x: x.reshape(2, 1, 3, 4).transpose(1, 2, 0, 3).reshape(1, 6, 4)[:, :5],
    ),
    (
        'nn.mirror_pad(%0, pad_width=[[1, 1], [0, 2]], mode="REFLECT")',
        (M,),
        lambda x: np.pad(x, ((1, 1), (0, 2)), "reflect"),
    ),
    ("nn.dilate(%0, strides=[2, 1])", (M,), dilated),
    ("nn.lrn(%0, size=3)", (IMAGE,), lrn),
    (
        "nn.adaptive_max_pool2d(%0, output_size=[1, 1])",
        (IMAGE,),
        lambda x: x.max((2, 3), keepdims=True),
    ),
    ("nn.adaptive_max_pool1d(%0)", (X,), lambda x: x),
    (
        "nn.avg_pool2d_grad(%0, %1, pool_size=[2, 2], strides=[2, 2])",
        (np.ones((1, 1, 1, 1), "float32"), np.ones((1, 1, 2, 2), "float32")),
        lambda g, x: np.full((1, 1, 2, 2), 0.25),
    ),
    (
        'image.resize1d(%0, size=[8], method="nearest_neighbor", rounding_method="floor",'
        ' coordinate_transformation_mode="asymmetric")',
        (X,),
        lambda x: x.repeat(2, 2),
    ),
    (
        'image.resize3d(%0, size=[2, 2, 2], method="nearest_neighbor", rounding_method="floor",'
        ' coordinate_transformation_mode="asymmetric")',
        (np.ones((1, 1, 1, 1, 1), "float32"),),
        lambda x: np.ones((1, 1, 2, 2, 2)),
    ),
    ("arange(1f, 4f, 0.5f)", (), lambda: np.arange(1, 4, 0.5)),
    ('arange(5, %0, -2, dtype="int32")', (np.array(0, "int32"),), lambda stop: np.array([5, 3, 1])),
    ("argwhere(%0)", (M > 0,), lambda x: np.argwhere(x)),
    ("adv_index((%0, %1, %1))", (SQUARE, ints(0, 3)), lambda x, i: x[i, i]),
    (
        'dyn.image.resize2d(%0, %1, method="nearest_neighbor", rounding_method="floor",'
        ' coordinate_transformation_mode="asymmetric")',
        (IMAGE, ints(10, 10)),
        lambda x, s: x.repeat(2, 2).repeat(2, 3),
    ),
    ("qnn.quantize", (M, TENTH, TWO), lambda x, s, z: quantized(x, s, z)),
    ("qnn.dequantize", (Q, HALF, TWO), real),
    (
        "qnn.dequantize(%0, %1, %2, axis=0)",
        (Q, np.array([0.5, 2], "float32"), TWO),
        lambda q, s, z: real(q, s[:, None], z),
    ),
    (
        "qnn.requantize",
        (Q.astype("int32") * 3, HALF, TWO, HALF, ZERO),
        lambda q, s, z, t, y: quantized(real(q, s, z), t, y),
    ),
    (
        "qnn.add",
        (Q, Q, HALF, TWO, HALF, ZERO, HALF, ZERO),
        lambda a, b, *s: quantized(real(a, 0.5, 2) + real(b, 0.5, 0), 0.5, 0),
    ),
    (
        "qnn.mul",
        (Q, Q, HALF, TWO, HALF, ZERO, HALF, ZERO),
        lambda a, b, *s: quantized(real(a, 0.5, 2) * real(b, 0.5, 0), 0.5, 0),
    ),
    (
        "qnn.tanh",
        (Q, HALF, TWO, TENTH, ZERO),
        lambda q, *s: quantized(np.tanh(real(q, 0.5, 2)), 0.1, 0),
    ),
    (
        "qnn.hardswish",
        (Q, HALF, TWO, HALF, ZERO),
        lambda q, *s: quantized(real(q, 0.5, 2) * np.clip(real(q, 0.5, 2) + 3, 0, 6) / 6, 0.5, 0),
    ),
    (
        "qnn.leaky_relu",
        (Q, HALF, TWO, HALF, ZERO),
        lambda q, *s: quantized(np.where(q > 2, 1, 0.25) * real(q, 0.5, 2), 0.5, 0),
    ),
    (
        "qnn.concatenate((%0, %0), (%1, %1), (%2, %2), %1, %2, axis=1)",
        (Q, HALF, TWO),
        lambda q, s, z: np.concatenate([q, q], 1),
    ),
    (
        "qnn.dense(%0, %0, %1, %2, %3, %3, units=2)",
        (Q, TWO, ZERO, HALF),
        lambda q, a, b, s: (q.astype("int32") - 2) @ q.astype("int32").T,
    ),
    (
        "qnn.conv2d(%0, %1, %2, %3, %4, %4)",
        (QIMAGE, QKERNEL, TWO, np.array([0, 1, 2], "int32"), HALF),
        lambda x, w, z, y, s: convolved(
            x.astype("int32") - 2, w.astype("int32") - y[:, None, None, None]
        ),
    ),
    (
        "nn.upsampling3d(%0, scale_d=1f, scale_h=2f, scale_w=1f)",
        (X[:, None, None],),
        lambda x: x.repeat(2, 3),
    ),
    (
        'nn.contrib_conv2d_NCHWc(%0, %1, data_layout="NCHW2c", kernel_layout="OIHW2i3o",'
        ' out_layout="NCHW3c")',
        (
            IMAGE.reshape(1, 1, 2, 5, 5).transpose(0, 1, 3, 4, 2).copy(),
            KERNEL.reshape(1, 3, 1, 2, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy(),
        ),
        lambda x, w: convolved(IMAGE, KERNEL).reshape(1, 1, 3, 3, 3).transpose(0, 1, 3, 4, 2),
    ),
    (
        'nn.contrib_dense_pack(%0, %1, weight_layout="NK2n")',
        (M, SQUARE.reshape(2, 2, 4).transpose(0, 2, 1).copy()),
        lambda x, w: x @ SQUARE.T,
    ),
    ("contrib_reverse_reshape(%0, newshape=[-1, 0])", (BATCHES,), lambda x: x.reshape(6, 4)),
    (
        "nn.fifo_buffer(%0, %1, axis=0)",
        (M[:1], SQUARE),
        lambda x, b: np.concatenate([b, x])[1:],
    ),
    (
        "strided_set",
        (SQUARE, np.full((2, 4), 7, "float32"), ints(-3), ints(4), ints(2)),
        lambda x, v, *b: np.concatenate([x[:1], v[:1], x[2:3], v[:1]]),
    ),
    (
        "fixed_point_multiply(%0, multiplier=1073741824, shift=-1)",
        (np.array([1, 2, 7, -7, 100], "int32"),),
        lambda x: np.floor(x / 4 + 0.5),
    ),
    ("vm.reshape_tensor", (M, ints(6, 2)), lambda x, s: x.reshape(6, 2)),
    ("dyn.reshape", (X, ints(0, -1)), lambda x, s: x.reshape(2, 12)),
    ("dyn.reshape", (X, ints(4, 6)), lambda x, s: x.reshape(4, 6)),
    ("dyn.broadcast_to", (M, ints(2, 3, 4)), lambda x, s: np.broadcast_to(x, (2, 3, 4))),
    ("dyn.tile", (M, ints(2, 1, 3)), lambda x, r: np.tile(x, (2, 1, 3))),
    ("dyn.full(2f, %0)", (ints(2, 3),), lambda s: np.full((2, 3), 2)),
    ("dyn.zeros", (ints(2, 3),), lambda s: np.zeros((2, 3))),
    ('dyn.ones(%0, dtype="int32")', (ints(2),), lambda s: np.ones(2)),
    ("dyn.one_hot(%0, 1, 0, %1)", (LENGTHS, np.array(4, "int32")), lambda i, d: np.eye(4)[i]),
    (
        "dyn.strided_slice",
        (X, ints(0, 1), ints(2, 3), ints(1, 1)),
        lambda x, b, e, s: x[0:2, 1:3],
    ),
    ("dyn.topk(%0, %1).0", (M, np.array(2, "int32")), lambda x, k: -np.sort(-x, -1)[:, :2]),
    (
        "dyn.nn.pad(%0, %1, 7f)",
        (M, np.array([[1, 0], [0, 2]], "int64")),
        lambda x, w: np.pad(x, ((1, 0), (0, 2)), constant_values=7),
    ),
    ("dyn.expand_dims(%0, %1)", (M, np.array(1, "int64")), lambda x, a: x[:, None]),
    ("dyn.squeeze(%0, %1)", (M[:, None], ints(1)), lambda x, a: x[:, 0]),
    ("vm.shape_of", (M,), lambda x: np.array(x.shape)),
    ("annotation.stop_fusion", (M,), lambda x: x),
    ('annotation.compiler_begin(%0, compiler="dnnl")', (M,), lambda x: x),
]


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(
    ("call", "inputs", "oracle"), CASES, ids=[f"{i}-{c[0][:40]}" for i, c in enumerate(CASES)]
)
def test_operators_agree_with_numpy(
    call: str, inputs: tuple[np.ndarray, ...], oracle: Callable[..., Any]
) -> None:
    module = relay.parse(program(call, inputs))
    expected = oracle(*inputs)
    ty = module["main"].ret_type
    for kind in ("debug", "vm"):
        result = relay.create_executor(kind, mod=module).evaluate()(*inputs)
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)
        assert ty.dtype == str(result.dtype)
        assert len(ty.shape) == result.ndim
        sizes = zip(ty.shape, result.shape, strict=True)
        assert all(isinstance(dim, relay.Any) or dim == size for dim, size in sizes)
