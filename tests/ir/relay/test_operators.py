"""Operators of Relay beside NumPy: their types and their values."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.ir.relay.op.registry import Op, list_op_names
from tests.relay_programs import refused

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
M = RNG.standard_normal((3, 4)).astype("float32")
W = RNG.standard_normal((5, 4)).astype("float32")
V = RNG.standard_normal(3).astype("float32")
I = RNG.integers(0, 3, (2, 2)).astype("int32")  # noqa: E741
P = np.abs(M) + 0.5
IMAGE = RNG.standard_normal((1, 2, 5, 5)).astype("float32")
KERNEL = RNG.standard_normal((3, 2, 3, 3)).astype("float32")
B = M > 0


def windows(data: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(data, (size, size), axis=(2, 3))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


LENGTHS = np.array([1, 3, 2, 0], "int32")
SQUARE = np.arange(16, dtype="float32").reshape(4, 4)
BATCHES = np.arange(24, dtype="float32").reshape(2, 3, 4)
DEEP = np.arange(32, dtype="float32").reshape(1, 8, 2, 2)
Q = np.array([[-7, 3, 20], [0, 5, -128]], "int8")
HALF, TWO = np.array(0.5, "float32"), np.array(2, "int32")
NONE, TENTH = np.array(0, "int32"), np.array(0.1, "float32")


DETECTED = np.array([[[0, 0.9, 1], [-1, 0.8, 2], [1, 0.1, 3], [2, 0.7, 4]]], "float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def reversed_rows(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.stack([np.concatenate([r[:n][::-1], r[n:]]) for r, n in zip(x, lengths, strict=True)])


def depth_to_space(x: np.ndarray) -> np.ndarray:
    return x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 4)


def space_to_depth(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


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
ONE, ZERO = np.ones(4, "float32"), np.zeros(4, "float32")
CASES: list[tuple[str, tuple[Any, ...], Callable[..., Any]]] = [
    ("abs", (X,), np.abs),
    ("ceil", (X,), np.ceil),
    ("exp", (X,), np.exp),
    ("log", (P,), np.log),
    ("log2", (P,), np.log2),
    ("log10", (P,), np.log10),
    ("sqrt", (P,), np.sqrt),
    ("rsqrt", (P,), lambda x: 1 / np.sqrt(x)),
    ("negative", (X,), np.negative),
    ("sigmoid", (X,), lambda x: 1 / (1 + np.exp(-x))),
    ("sign", (X,), np.sign),
    ("logical_not", (B,), np.logical_not),
    ("copy", (X,), lambda x: x),
    ("isnan", (X,), np.isnan),
    ("clip(%0, a_min=-0.5f, a_max=0.5f)", (X,), lambda x: np.clip(x, -0.5, 0.5)),
    ("add", (X, M), np.add),
    ("subtract", (X, M), np.subtract),
    ("multiply", (X, M), np.multiply),
    ("divide", (X, P), np.divide),
    ("maximum", (X, M), np.maximum),
    ("power", (P, M), np.power),
    (
        "divide",
        (np.array([7, -7], "int32"), np.array([2, 2], "int32")),
        lambda a, b: np.trunc(a / b),
    ),
    ("floor_divide", (np.array([7, -7], "int32"), np.array([2, 2], "int32")), np.floor_divide),
    ("floor_mod", (np.array([7, -7], "int32"), np.array([2, 2], "int32")), np.mod),
    ("trunc_mod", (np.array([7, -7], "int32"), np.array([2, 2], "int32")), np.fmod),
    ("left_shift", (I, I), np.left_shift),
    ("bitwise_xor", (I, I), np.bitwise_xor),
    ("less", (X, M), np.less),
    ("not_equal", (I, I), np.not_equal),
    ("sum", (X,), np.sum),
    ("sum(%0, axis=[0, 2])", (X,), lambda x: x.sum((0, 2))),
    ("mean(%0, axis=1, keepdims=True)", (X,), lambda x: x.mean(1, keepdims=True)),
    ("max(%0, axis=[1], exclude=True)", (X,), lambda x: x.max((0, 2))),
    ("prod(%0, axis=-1)", (X,), lambda x: x.prod(-1)),
    ("min", (X,), np.min),
    ("all(%0, axis=0)", (B,), lambda b: b.all(0)),
    ("any", (B,), np.any),
    ("argmax(%0, axis=1)", (M,), lambda x: x.argmax(1)),
    ("argmin", (M,), np.argmin),
    ("argmax(%0, axis=1, select_last_index=True)", (np.ones((2, 3), "float32"),), lambda x: [2, 2]),
    ("variance(%0, %1, axis=0)", (M, M.mean(0, keepdims=True)), lambda x, m: x.var(0)),
    ('zeros(shape=[2, 3], dtype="int8")', (), lambda: np.zeros((2, 3), "int8")),
    ('full(%0, shape=[2], dtype="")', (np.array(3, "int16"),), lambda v: np.full(2, v)),
    ("ones_like", (X,), np.ones_like),
    ("full_like", (X, np.array(2, "float32")), np.full_like),
    ("reshape(%0, newshape=[0, -1])", (X,), lambda x: x.reshape(2, 12)),
    ("reshape(%0, newshape=[-3, -2])", (X,), lambda x: x.reshape(6, 4)),
    ("reshape(%0, newshape=[0, 0, -4, 2, -1])", (X,), lambda x: x.reshape(2, 3, 2, 2)),
    ("reshape_like", (M, X[0]), lambda x, y: x.reshape(y.shape)),
    ("expand_dims(%0, axis=1, num_newaxis=2)", (M,), lambda x: x[:, None, None]),
    ("squeeze(%0, axis=[0])", (X[:1],), lambda x: x[0]),
    ("transpose", (X,), np.transpose),
    ("transpose(%0, axes=[1, 0, 2])", (X,), lambda x: x.transpose(1, 0, 2)),
    ("concatenate((%0, %1), axis=1)", (M, M), lambda a, b: np.concatenate((a, b), 1)),
    ("stack((%0, %1), axis=-1)", (M, M), lambda a, b: np.stack((a, b), -1)),
    ("split(%0, indices_or_sections=2, axis=1)", (M,), lambda x: tuple(np.split(x, 2, 1))),
    ("split(%0, indices_or_sections=[1, 2], axis=0)", (M,), lambda x: tuple(np.split(x, [1, 2]))),
    ("tile(%0, reps=[2, 1])", (M,), lambda x: np.tile(x, (2, 1))),
    ("repeat(%0, repeats=2, axis=0)", (M,), lambda x: np.repeat(x, 2, 0)),
    ("broadcast_to(%0, shape=[2, 3, 4])", (M,), lambda x: np.broadcast_to(x, (2, 3, 4))),
    ("broadcast_to_like", (M, X), lambda x, y: np.broadcast_to(x, y.shape)),
    ("collapse_sum_like", (X, M), lambda x, y: x.sum(0)),
    ("reverse(%0, axis=1)", (M,), lambda x: x[:, ::-1]),
    ("nn.batch_flatten", (X,), lambda x: x.reshape(2, 12)),
    ("strided_slice(%0, begin=[0, 1], end=[2, 4])", (M,), lambda x: x[:2, 1:4]),
    (
        'strided_slice(%0, begin=[1], end=[2], slice_mode="size", axes=[1])',
        (M,),
        lambda x: x[:, 1:3],
    ),
    ("slice_like(%0, %1)", (M, M[:2, :3]), lambda x, y: x[:2, :3]),
    ("take(%0, %1, axis=0)", (M, I), lambda x, i: x[i]),
    ("take", (M, I), lambda x, i: x.ravel()[i]),
    ("gather(%0, %1, axis=0)", (M, I), lambda x, i: np.take_along_axis(x[:, :2], i, 0)),
    ("gather_nd", (M, I), lambda x, i: x[i[0], i[1]]),
    ("where", (B, M, P), np.where),
    (
        "one_hot(%0, %1, %2, depth=3)",
        (I, np.array(1, "float32"), np.array(0, "float32")),
        lambda i, a, b: np.eye(3)[i],
    ),
    ("trilu", (M, np.array(1, "int64")), lambda x, k: np.triu(x, 1)),
    ('cast(%0, dtype="int32")', (X,), lambda x: x.astype("int32")),
    ("shape_of", (X,), lambda x: np.array(x.shape)),
    ("ndarray_size", (X,), np.size),
    ("sort(%0, axis=1)", (M,), lambda x: np.sort(x, 1)),
    ("argsort(%0, axis=1, is_ascend=False)", (M,), lambda x: np.argsort(-x, 1)),
    ("topk(%0, k=2)", (M,), lambda x: (-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2])),
    ("cumsum(%0, axis=0)", (M,), lambda x: x.cumsum(0)),
    ('einsum((%0, %1), equation="ij,kj->ik")', (M, W), lambda a, b: a @ b.T),
    ("nn.dense", (M, W), lambda x, w: x @ w.T),
    ("nn.matmul(%0, %1, transpose_b=True)", (M, W), lambda x, w: x @ w.T),
    ("nn.batch_matmul(%0, %1, transpose_b=True)", (X, X), lambda a, b: a @ b.swapaxes(1, 2)),
    ("nn.bias_add(%0, %1)", (X, V), lambda x, b: x + b[:, None]),
    (
        "nn.conv2d(%0, %1, padding=[1, 1], kernel_size=[3, 3])",
        (IMAGE, KERNEL),
        lambda x, w: np.einsum(
            "nchwij,ocij->nohw", windows(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 3), w
        ),
    ),
    ("nn.max_pool2d(%0, pool_size=[2, 2])", (IMAGE,), lambda x: windows(x, 2).max((4, 5))),
    ("nn.avg_pool2d(%0, pool_size=[2, 2])", (IMAGE,), lambda x: windows(x, 2).mean((4, 5))),
    ("nn.global_avg_pool2d", (IMAGE,), lambda x: x.mean((2, 3), keepdims=True)),
    ("nn.layer_norm", (X, ONE, ZERO), lambda x, g, b: norm(x, (2,))),
    ("nn.instance_norm", (IMAGE, ONE[:2], ZERO[:2]), lambda x, g, b: norm(x, (2, 3))),
    (
        "nn.group_norm(%0, %1, %2, num_groups=1)",
        (IMAGE, ONE[:2], ZERO[:2]),
        lambda x, g, b: norm(x, (1, 2, 3)),
    ),
    (
        "nn.batch_norm(%0, %1, %2, %3, %4).0",
        (IMAGE, ONE[:2], ZERO[:2], ZERO[:2], ONE[:2]),
        lambda x, *_: x / np.sqrt(1 + 1e-5),
    ),
    ("nn.l2_normalize(%0, axis=[1])", (M,), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    ("nn.relu", (X,), lambda x: np.maximum(x, 0)),
    ("nn.leaky_relu", (X,), lambda x: np.where(x > 0, x, 0.25 * x)),
    ("nn.prelu", (X, V), lambda x, a: np.where(x > 0, x, a[:, None] * x)),
    ("nn.softmax", (X,), softmax),
    ("nn.log_softmax", (X,), lambda x: np.log(softmax(x))),
    ("nn.dropout(%0).0", (X,), lambda x: x),
    ("nn.cross_entropy", (P, np.abs(M)), lambda p, t: -(np.log(p) * t).sum() / 3),
    (
        "nn.pad(%0, %1, pad_width=[[1, 0], [0, 2]])",
        (M, np.array(7, "float32")),
        lambda x, v: np.pad(x, ((1, 0), (0, 2)), constant_values=7),
    ),
    (
        'nn.pad(%0, %1, pad_width=[[1, 1], [1, 1]], pad_mode="edge")',
        (M, np.array(0, "float32")),
        lambda x, v: np.pad(x, 1, "edge"),
    ),
    ("nn.upsampling(%0, scale_h=2f, scale_w=2f)", (IMAGE,), lambda x: x.repeat(2, 2).repeat(2, 3)),
    ("reverse_sequence", (SQUARE, LENGTHS), reversed_rows),
    ("searchsorted(%0, %1)", (np.array([1, 2, 4], "float32"), M), np.searchsorted),
    (
        "searchsorted(%0, %1, right=True)",
        (np.array([0, 0, 4], "float32"), np.zeros(2, "float32")),
        lambda s, v: np.searchsorted(s, v, "right"),
    ),
    ('reinterpret(%0, dtype="int32")', (M,), lambda x: x.view("int32")),
    (
        'layout_transform(%0, src_layout="NCHW", dst_layout="NHWC")',
        (IMAGE,),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    ("nn.depth_to_space(%0, block_size=2)", (DEEP,), depth_to_space),
    ("nn.space_to_depth(%0, block_size=2)", (IMAGE[:, :, :4, :4],), space_to_depth),
    ("nn.lrn(%0, size=3)", (IMAGE,), lrn),
    (
        "nn.avg_pool2d_grad(%0, %1, pool_size=[2, 2], strides=[2, 2])",
        (np.ones((1, 1, 1, 1), "float32"), np.ones((1, 1, 2, 2), "float32")),
        lambda g, x: np.full((1, 1, 2, 2), 0.25),
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
        (Q.astype("int32") * 3, HALF, TWO, HALF, NONE),
        lambda q, s, z, t, y: quantized(real(q, s, z), t, y),
    ),
    (
        "qnn.add",
        (Q, Q, HALF, TWO, HALF, NONE, HALF, NONE),
        lambda a, b, *s: quantized(real(a, 0.5, 2) + real(b, 0.5, 0), 0.5, 0),
    ),
    (
        "qnn.mul",
        (Q, Q, HALF, TWO, HALF, NONE, HALF, NONE),
        lambda a, b, *s: quantized(real(a, 0.5, 2) * real(b, 0.5, 0), 0.5, 0),
    ),
    (
        "qnn.tanh",
        (Q, HALF, TWO, TENTH, NONE),
        lambda q, *s: quantized(np.tanh(real(q, 0.5, 2)), 0.1, 0),
    ),
    (
        "qnn.hardswish",
        (Q, HALF, TWO, HALF, NONE),
        lambda q, *s: quantized(real(q, 0.5, 2) * np.clip(real(q, 0.5, 2) + 3, 0, 6) / 6, 0.5, 0),
    ),
    (
        "qnn.leaky_relu",
        (Q, HALF, TWO, HALF, NONE),
        lambda q, *s: quantized(np.where(q > 2, 1, 0.25) * real(q, 0.5, 2), 0.5, 0),
    ),
    (
        "qnn.concatenate((%0, %0), (%1, %1), (%2, %2), %1, %2, axis=1)",
        (Q, HALF, TWO),
        lambda q, s, z: np.concatenate([q, q], 1),
    ),
    (
        "qnn.dense(%0, %0, %1, %2, %3, %3, units=2)",
        (Q, TWO, NONE, HALF),
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
        "strided_set",
        (SQUARE, np.full((2, 4), 7, "float32"), ints(-3), ints(4), ints(2)),
        lambda x, v, *b: np.concatenate([x[:1], v[:1], x[2:3], v[:1]]),
    ),
    ("dyn.reshape", (X, ints(0, -1)), lambda x, s: x.reshape(2, 12)),
    ("dyn.reshape", (X, ints(4, 6)), lambda x, s: x.reshape(4, 6)),
    ("dyn.broadcast_to", (M, ints(2, 3, 4)), lambda x, s: np.broadcast_to(x, (2, 3, 4))),
    ("dyn.tile", (M, ints(2, 1, 3)), lambda x, r: np.tile(x, (2, 1, 3))),
    ("dyn.full(2f, %0)", (ints(2, 3),), lambda s: np.full((2, 3), 2)),
    ("dyn.zeros", (ints(2, 3),), lambda s: np.zeros((2, 3))),
    ('dyn.ones(%0, dtype="int32")', (ints(2),), lambda s: np.ones(2)),
    ("dyn.one_hot(%0, 1, 0, %1)", (LENGTHS, np.array(4, "int32")), lambda i, d: np.eye(4)[i]),
    ("dyn.strided_slice", (X, ints(0, 1), ints(2, 3), ints(1, 1)), lambda x, b, e, s: x[0:2, 1:3]),
    ("dyn.topk(%0, %1).0", (M, np.array(2, "int32")), lambda x, k: -np.sort(-x, -1)[:, :2]),
    (
        "dyn.nn.pad(%0, %1, 7f)",
        (M, np.array([[1, 0], [0, 2]], "int64")),
        lambda x, w: np.pad(x, ((1, 0), (0, 2)), constant_values=7),
    ),
    ("dyn.expand_dims(%0, %1)", (M, np.array(1, "int64")), lambda x, a: x[:, None]),
    ("dyn.squeeze(%0, %1)", (M[:, None], ints(1)), lambda x, a: x[:, 0]),
    (
        "vision.get_valid_counts(%0, 0.5f)",
        (DETECTED,),
        lambda x: (
            np.array([2]),
            np.array([[*x[0, [0, 3]], [-1] * 3, [-1] * 3]]),
            np.array([[0, 3, -1, -1]]),
        ),
    ),
    (
        "dyn.nn.upsampling(%0, 2f, %1)",
        (IMAGE, np.array(3, "float32")),
        lambda x, _: x.repeat(2, 2).repeat(3, 3),
    ),
    (
        "nn.max_pool2d_grad(%0, %1, pool_size=[2, 2], strides=[2, 2])",
        (np.ones((1, 1, 1, 1), "float32"), SQUARE[None, None, :2, :2]),
        lambda g, x: np.array([[[[0, 0], [0, 1]]]]),
    ),
]


def program(call: str, inputs: tuple[np.ndarray, ...]) -> str:
    """A function of tensors `%a0`, `%a1`, … that returns the call."""
    params = ", ".join(
        f"%a{i}: Tensor[({''.join(f'{d}, ' for d in x.shape)}), {x.dtype}]"
        for i, x in enumerate(inputs)
    )
    if "(" not in call:
        call = f"{call}({', '.join(f'%{i}' for i in range(len(inputs)))})"
    for i in range(len(inputs)):
        call = call.replace(f"%{i}", f"%a{i}")
    return f"def @main({params}) {{ {call} }}"


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(
    ("call", "inputs", "oracle"), CASES, ids=[f"{i}-{c[0][:40]}" for i, c in enumerate(CASES)]
)
def test_operators_agree_with_numpy(
    call: str, inputs: tuple[np.ndarray, ...], oracle: Callable[..., Any]
) -> None:
    """In the evaluator, which runs machine code, and in the translation to NumPy."""
    module = relay.parse(program(call, inputs))
    expected = oracle(*inputs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    ty = module["main"].ret_type
    types = ty.fields if isinstance(ty, relay.TupleType) else (ty,)
    for function in (
        relay.create_executor(mod=module).evaluate(),
        relaxpy.compile(relay.to_relax(module), "numpy")["main"],
    ):
        result = function(*inputs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for one, other, declared in zip(results, wanted, types, strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
            assert str(declared.dtype) == str(one.dtype)
            sizes = zip(declared.shape, np.shape(one), strict=True)
            assert all(isinstance(dim, relay.Any) or dim == size for dim, size in sizes)
    assert str(relay.parse(module.astext())) == str(module)


@pytest.mark.rule("RLY-71")
def test_every_operator_has_operands_a_translation_and_a_maker() -> None:
    for name in list_op_names():
        record = Op.get(name).record
        assert record.translate or record.compute, name
        assert not set(record.operands) & set(record.attributes), name
        maker = functools.reduce(getattr, name.split("."), relay)
        assert maker.__name__ == name.rpartition(".")[2]


@pytest.mark.rule("RLY-71")
def test_defaults_of_text_and_python_differ_where_they_do_in_tvm() -> None:
    x = relay.var("x", shape=(2,))
    assert relay.nn.leaky_relu(x).attrs["alpha"] == 0.01
    text = relay.parse_expr("free_var %x: Tensor[(2,), float32]; nn.leaky_relu(%x)")
    assert text.attrs["alpha"] == 0.25
    with pytest.raises(TypeError, match="alhpa"):
        relay.nn.leaky_relu(x, alhpa=1)
    with pytest.raises(TypeError, match="newshape"):
        relay.reshape(x)


def test_identity_of_an_operator_is_of_tensors() -> None:
    """RLY-102: a tuple or a function is no operand, although both sides have one type."""
    assert "expected a tensor, found ()" in refused("negative(())", "RLY-23")
    refused("nn.relu(fn() { 1 })", "RLY-23")


def test_both_choices_of_where_have_one_datatype() -> None:
    """RLY-23: a Boolean is not a number."""
    message = refused("where(True, 1f, False)", "RLY-23")
    assert "x and y have one datatype, found float32 and bool" in message
