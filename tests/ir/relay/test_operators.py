"""Operators of Relay beside NumPy: their types and their values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
    ("shape_of", (X,), lambda x: x.shape),
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
    module = relay.parse(program(call, inputs))
    result = relay.create_executor(mod=module).evaluate()(*inputs)
    expected = oracle(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    wanted = expected if isinstance(result, tuple) else (expected,)
    ty = module["main"].ret_type
    types = ty.fields if isinstance(ty, relay.TupleType) else (ty,)
    for one, other, declared in zip(results, wanted, types, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
        assert declared == relay.TensorType(one.shape, str(one.dtype))


@pytest.mark.rule("RLY-71")
@pytest.mark.parametrize("name", [n for n in list_op_names() if not n.startswith("to_relax.")])
def test_every_operator_has_operands_a_translation_and_a_maker(name: str) -> None:
    record = Op.get(name).record
    ways = record.translate, record.emit, record.compute, record.is_call, record.refusal
    assert any(ways)
    assert not set(record.operands) & set(record.attributes)
    module, _, short = name.rpartition(".")
    place: Any = relay
    for part in module.split(".") if module else []:
        place = getattr(place, part)
    maker = getattr(place, short)
    assert maker.__name__ == short


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
