"""Operators of Relay beside NumPy: their types and their values."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.plugins.relay.op.registry import Op, list_op_names
from tests.ir.ops.cases.images import resized
from tests.relay_programs import refused
from tests.rows import table

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


def enlarged(x: np.ndarray, size: tuple[int, int], method: str) -> np.ndarray:
    return resized(x, size, "NCHW", method=method, coordinate_transformation_mode="asymmetric")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


LENGTHS = np.array([1, 3, 2, 0], "int32")
SQUARE = np.arange(16, dtype="float32").reshape(4, 4)
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
#: Calls, the operands `%0`, `%1`, … (in order, where the call has none), and their values.
CASES = table("""
abs <- X => np.abs(X)
ceil <- X => np.ceil(X)
exp <- X => np.exp(X)
log <- P => np.log(P)
log2 <- P => np.log2(P)
log10 <- P => np.log10(P)
sqrt <- P => np.sqrt(P)
rsqrt <- P => 1 / np.sqrt(P)
negative <- X => np.negative(X)
sigmoid <- X => 1 / (1 + np.exp(-X))
sign <- X => np.sign(X)
logical_not <- B => np.logical_not(B)
copy <- X => X
isnan <- X => np.isnan(X)
clip(%0, a_min=-0.5f, a_max=0.5f) <- X => np.clip(X, -0.5, 0.5)
add <- X, M => np.add(X, M)
subtract <- X, M => np.subtract(X, M)
multiply <- X, M => np.multiply(X, M)
divide <- X, P => np.divide(X, P)
maximum <- X, M => np.maximum(X, M)
power <- P, M => np.power(P, M)
divide <- np.array([7, -7], "int32"), np.array([2, 2], "int32")
    => np.trunc(np.array([7, -7], "int32") / np.array([2, 2], "int32"))
floor_divide <- np.array([7, -7], "int32"), np.array([2, 2], "int32")
    => np.floor_divide(np.array([7, -7], "int32"), np.array([2, 2], "int32"))
floor_mod <- np.array([7, -7], "int32"), np.array([2, 2], "int32")
    => np.mod(np.array([7, -7], "int32"), np.array([2, 2], "int32"))
trunc_mod <- np.array([7, -7], "int32"), np.array([2, 2], "int32")
    => np.fmod(np.array([7, -7], "int32"), np.array([2, 2], "int32"))
left_shift <- I, I => np.left_shift(I, I)
bitwise_xor <- I, I => np.bitwise_xor(I, I)
less <- X, M => np.less(X, M)
not_equal <- I, I => np.not_equal(I, I)
sum <- X => np.sum(X)
sum(%0, axis=[0, 2]) <- X => X.sum((0, 2))
mean(%0, axis=1, keepdims=True) <- X => X.mean(1, keepdims=True)
max(%0, axis=[1], exclude=True) <- X => X.max((0, 2))
prod(%0, axis=-1) <- X => X.prod(-1)
min <- X => np.min(X)
all(%0, axis=0) <- B => B.all(0)
any <- B => np.any(B)
argmax(%0, axis=1) <- M => M.argmax(1)
argmin <- M => np.argmin(M)
argmax(%0, axis=1, select_last_index=True) <- np.ones((2, 3), "float32") => [2, 2]
variance(%0, %1, axis=0) <- M, M.mean(0, keepdims=True) => M.var(0)
zeros(shape=[2, 3], dtype="int8") <- => np.zeros((2, 3), "int8")
full(%0, shape=[2], dtype="") <- np.array(3, "int16") => np.full(2, np.array(3, "int16"))
ones_like <- X => np.ones_like(X)
full_like <- X, np.array(2, "float32") => np.full_like(X, np.array(2, "float32"))
reshape(%0, newshape=[0, -1]) <- X => X.reshape(2, 12)
reshape(%0, newshape=[-3, -2]) <- X => X.reshape(6, 4)
reshape(%0, newshape=[0, 0, -4, 2, -1]) <- X => X.reshape(2, 3, 2, 2)
reshape_like <- M, X[0] => M.reshape(X[0].shape)
expand_dims(%0, axis=1, num_newaxis=2) <- M => M[:, None, None]
squeeze(%0, axis=[0]) <- X[:1] => X[:1][0]
transpose <- X => np.transpose(X)
transpose(%0, axes=[1, 0, 2]) <- X => X.transpose(1, 0, 2)
concatenate((%0, %1), axis=1) <- M, M => np.concatenate((M, M), 1)
stack((%0, %1), axis=-1) <- M, M => np.stack((M, M), -1)
split(%0, indices_or_sections=2, axis=1) <- M => tuple(np.split(M, 2, 1))
split(%0, indices_or_sections=[1, 2], axis=0) <- M => tuple(np.split(M, [1, 2]))
tile(%0, reps=[2, 1]) <- M => np.tile(M, (2, 1))
repeat(%0, repeats=2, axis=0) <- M => np.repeat(M, 2, 0)
broadcast_to(%0, shape=[2, 3, 4]) <- M => np.broadcast_to(M, (2, 3, 4))
broadcast_to_like <- M, X => np.broadcast_to(M, X.shape)
collapse_sum_like <- X, M => X.sum(0)
reverse(%0, axis=1) <- M => M[:, ::-1]
nn.batch_flatten <- X => X.reshape(2, 12)
strided_slice(%0, begin=[0, 1], end=[2, 4]) <- M => M[:2, 1:4]
strided_slice(%0, begin=[1], end=[2], slice_mode="size", axes=[1]) <- M => M[:, 1:3]
slice_like(%0, %1) <- M, M[:2, :3] => M[:2, :3]
take(%0, %1, axis=0) <- M, I => M[I]
take <- M, I => M.ravel()[I]
gather(%0, %1, axis=0) <- M, I => np.take_along_axis(M[:, :2], I, 0)
gather_nd <- M, I => M[I[0], I[1]]
where <- B, M, P => np.where(B, M, P)
one_hot(%0, %1, %2, depth=3) <- I, np.array(1, "float32"), np.array(0, "float32") => np.eye(3)[I]
trilu <- M, np.array(1, "int64") => np.triu(M, 1)
cast(%0, dtype="int32") <- X => X.astype("int32")
shape_of <- X => np.array(X.shape)
ndarray_size <- X => np.size(X)
sort(%0, axis=1) <- M => np.sort(M, 1)
argsort(%0, axis=1, is_ascend=False) <- M => np.argsort(-M, 1)
topk(%0, k=2) <- M => (-np.sort(-M, 1)[:, :2], np.argsort(-M, 1)[:, :2])
cumsum(%0, axis=0) <- M => M.cumsum(0)
einsum((%0, %1), equation="ij,kj->ik") <- M, W => M @ W.T
nn.dense <- M, W => M @ W.T
nn.matmul(%0, %1, transpose_b=True) <- M, W => M @ W.T
nn.batch_matmul(%0, %1, transpose_b=True) <- X, X => X @ X.swapaxes(1, 2)
nn.bias_add(%0, %1) <- X, V => X + V[:, None]
nn.conv2d(%0, %1, padding=[1, 1], kernel_size=[3, 3]) <- IMAGE, KERNEL
    => np.einsum("nchwij,ocij->nohw", windows(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1))), 3),
    KERNEL)
nn.max_pool2d(%0, pool_size=[2, 2]) <- IMAGE => windows(IMAGE, 2).max((4, 5))
nn.avg_pool2d(%0, pool_size=[2, 2]) <- IMAGE => windows(IMAGE, 2).mean((4, 5))
nn.global_avg_pool2d <- IMAGE => IMAGE.mean((2, 3), keepdims=True)
nn.layer_norm <- X, ONE, ZERO => norm(X, (2,))
nn.instance_norm <- IMAGE, ONE[:2], ZERO[:2] => norm(IMAGE, (2, 3))
nn.group_norm(%0, %1, %2, num_groups=1) <- IMAGE, ONE[:2], ZERO[:2] => norm(IMAGE, (1, 2, 3))
nn.batch_norm(%0, %1, %2, %3, %4).0 <- IMAGE, ONE[:2], ZERO[:2], ZERO[:2], ONE[:2]
    => IMAGE / np.sqrt(1 + 1e-05)
nn.l2_normalize(%0, axis=[1]) <- M => M / np.sqrt((M * M).sum(1, keepdims=True))
nn.relu <- X => np.maximum(X, 0)
nn.leaky_relu <- X => np.where(X > 0, X, 0.25 * X)
nn.prelu <- X, V => np.where(X > 0, X, V[:, None] * X)
nn.softmax <- X => softmax(X)
nn.log_softmax <- X => np.log(softmax(X))
nn.dropout(%0).0 <- X => X
nn.cross_entropy <- P, np.abs(M) => -(np.log(P) * np.abs(M)).sum() / 3
nn.pad(%0, %1, pad_width=[[1, 0], [0, 2]]) <- M, np.array(7, "float32")
    => np.pad(M, ((1, 0), (0, 2)), constant_values=7)
nn.pad(%0, %1, pad_width=[[1, 1], [1, 1]], pad_mode="edge") <- M, np.array(0, "float32")
    => np.pad(M, 1, "edge")
nn.upsampling(%0, scale_h=2f, scale_w=2f) <- IMAGE => IMAGE.repeat(2, 2).repeat(2, 3)
reverse_sequence <- SQUARE, LENGTHS => reversed_rows(SQUARE, LENGTHS)
searchsorted(%0, %1) <- np.array([1, 2, 4], "float32"), M
    => np.searchsorted(np.array([1, 2, 4], "float32"), M)
searchsorted(%0, %1, right=True) <- np.array([0, 0, 4], "float32"), np.zeros(2, "float32")
    => np.searchsorted(np.array([0, 0, 4], "float32"), np.zeros(2, "float32"), "right")
reinterpret(%0, dtype="int32") <- M => M.view("int32")
layout_transform(%0, src_layout="NCHW", dst_layout="NHWC") <- IMAGE => IMAGE.transpose(0, 2, 3, 1)
nn.depth_to_space(%0, block_size=2) <- DEEP => depth_to_space(DEEP)
nn.space_to_depth(%0, block_size=2) <- IMAGE[:, :, :4, :4] => space_to_depth(IMAGE[:, :, :4, :4])
nn.lrn(%0, size=3) <- IMAGE => lrn(IMAGE)
nn.avg_pool2d_grad(%0, %1, pool_size=[2, 2], strides=[2, 2])
    <- np.ones((1, 1, 1, 1), "float32"), np.ones((1, 1, 2, 2), "float32")
    => np.full((1, 1, 2, 2), 0.25)
image.resize3d(%0, size=[2, 2, 2], method="nearest_neighbor", rounding_method="floor",
    coordinate_transformation_mode="asymmetric") <- np.ones((1, 1, 1, 1, 1), "float32")
    => np.ones((1, 1, 2, 2, 2))
arange(1f, 4f, 0.5f) <- => np.arange(1, 4, 0.5)
arange(5, %0, -2, dtype="int32") <- np.array(0, "int32") => np.array([5, 3, 1])
argwhere(%0) <- M > 0 => np.argwhere(M > 0)
adv_index((%0, %1, %1)) <- SQUARE, ints(0, 3) => SQUARE[ints(0, 3), ints(0, 3)]
dyn.image.resize2d(%0, %1, method="nearest_neighbor", rounding_method="floor",
    coordinate_transformation_mode="asymmetric") <- IMAGE, ints(10, 10)
    => IMAGE.repeat(2, 2).repeat(2, 3)
qnn.quantize <- M, TENTH, TWO => quantized(M, TENTH, TWO)
qnn.dequantize <- Q, HALF, TWO => real(Q, HALF, TWO)
qnn.dequantize(%0, %1, %2, axis=0) <- Q, np.array([0.5, 2], "float32"), TWO
    => real(Q, np.array([0.5, 2], "float32")[:, None], TWO)
qnn.requantize <- Q.astype("int32") * 3, HALF, TWO, HALF, NONE
    => quantized(real(Q.astype("int32") * 3, HALF, TWO), HALF, NONE)
qnn.add <- Q, Q, HALF, TWO, HALF, NONE, HALF, NONE
    => quantized(real(Q, 0.5, 2) + real(Q, 0.5, 0), 0.5, 0)
qnn.mul <- Q, Q, HALF, TWO, HALF, NONE, HALF, NONE
    => quantized(real(Q, 0.5, 2) * real(Q, 0.5, 0), 0.5, 0)
qnn.tanh <- Q, HALF, TWO, TENTH, NONE => quantized(np.tanh(real(Q, 0.5, 2)), 0.1, 0)
qnn.hardswish <- Q, HALF, TWO, HALF, NONE
    => quantized(real(Q, 0.5, 2) * np.clip(real(Q, 0.5, 2) + 3, 0, 6) / 6, 0.5, 0)
qnn.leaky_relu <- Q, HALF, TWO, HALF, NONE
    => quantized(np.where(Q > 2, 1, 0.25) * real(Q, 0.5, 2), 0.5, 0)
qnn.concatenate((%0, %0), (%1, %1), (%2, %2), %1, %2, axis=1) <- Q, HALF, TWO
    => np.concatenate([Q, Q], 1)
qnn.dense(%0, %0, %1, %2, %3, %3, units=2) <- Q, TWO, NONE, HALF
    => (Q.astype("int32") - 2) @ Q.astype("int32").T
qnn.conv2d(%0, %1, %2, %3, %4, %4) <- QIMAGE, QKERNEL, TWO, np.array([0, 1, 2], "int32"), HALF
    => convolved(QIMAGE.astype("int32") - 2, QKERNEL.astype("int32") - np.array([0, 1, 2],
    "int32")[:, None, None, None])
nn.upsampling3d(%0, scale_d=1f, scale_h=2f, scale_w=1f) <- X[:, None, None]
    => X[:, None, None].repeat(2, 3)
strided_set <- SQUARE, np.full((2, 4), 7, "float32"), ints(-3), ints(4), ints(2)
    => np.concatenate([SQUARE[:1], np.full((2, 4), 7, "float32")[:1], SQUARE[2:3], np.full((2, 4),
    7, "float32")[:1]])
dyn.reshape <- X, ints(0, -1) => X.reshape(2, 12)
dyn.reshape <- X, ints(4, 6) => X.reshape(4, 6)
dyn.broadcast_to <- M, ints(2, 3, 4) => np.broadcast_to(M, (2, 3, 4))
dyn.tile <- M, ints(2, 1, 3) => np.tile(M, (2, 1, 3))
dyn.full(2f, %0) <- ints(2, 3) => np.full((2, 3), 2)
dyn.zeros <- ints(2, 3) => np.zeros((2, 3))
dyn.ones(%0, dtype="int32") <- ints(2) => np.ones(2)
dyn.one_hot(%0, 1, 0, %1) <- LENGTHS, np.array(4, "int32") => np.eye(4)[LENGTHS]
dyn.strided_slice <- X, ints(0, 1), ints(2, 3), ints(1, 1) => X[0:2, 1:3]
dyn.topk(%0, %1).0 <- M, np.array(2, "int32") => -np.sort(-M, -1)[:, :2]
dyn.nn.pad(%0, %1, 7f) <- M, np.array([[1, 0], [0, 2]], "int64")
    => np.pad(M, ((1, 0), (0, 2)), constant_values=7)
dyn.expand_dims(%0, %1) <- M, np.array(1, "int64") => M[:, None]
dyn.squeeze(%0, %1) <- M[:, None], ints(1) => M[:, None][:, 0]
vision.get_valid_counts(%0, 0.5f) <- DETECTED
    => (np.array([2]), np.array([[*DETECTED[0, [0, 3]], [-1] * 3, [-1] * 3]]), np.array([[0, 3, -1,
    -1]]))
dyn.nn.upsampling(%0, 2f, %1) <- IMAGE, np.array(3, "float32") => IMAGE.repeat(2, 2).repeat(3, 3)
nn.max_pool2d_grad(%0, %1, pool_size=[2, 2], strides=[2, 2])
    <- np.ones((1, 1, 1, 1), "float32"), SQUARE[None, None, :2, :2]
    => np.array([[[[0, 0], [0, 1]]]])
trunc_divide <- M, P => np.trunc(M / P)
take(%0, %1, axis=1, batch_dims=1) <- M, LENGTHS[:3] => M[np.arange(3), LENGTHS[:3]]
take(%0, %1, axis=2, batch_dims=-1) <- X, I => np.take_along_axis(X, I[:, None], 2)
arange(%0, %1, %2, dtype="int64") <- ints(2**60)[0], ints(2**60 - 5)[0], ints(-2)[0]
    => 2**60 - np.arange(0, 5, 2)
nn.upsampling(%0, scale_h=2f, method="bilinear") <- IMAGE => enlarged(IMAGE, (10, 5), "linear")
nn.upsampling(%0, scale_w=2f, method="bicubic") <- IMAGE => enlarged(IMAGE, (5, 10), "cubic")
""")


def program(call: str, inputs: Sequence[np.ndarray]) -> str:
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
    ("call", "operands", "value"), CASES, ids=[f"{i}-{c[0][:40]}" for i, c in enumerate(CASES)]
)
def test_operators_agree_with_numpy(call: str, operands: str, value: str) -> None:
    """In the evaluator, which runs machine code, and in the translation to NumPy."""
    inputs = eval(f"[{operands}]")
    module = relay.parse(program(call, inputs))
    expected = eval(value)
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


def test_batches_of_take_are_axes_of_indices_before_its_axis() -> None:
    for axis, batch in (0, 1), (2, 2), (2, -2):
        text = "fn(%x: Tensor[(2, 2, 2), int8], %i: Tensor[(2,), int32]) { take(%x, %i, "
        message = refused(f"{text}axis={axis}, batch_dims={batch}) }}", "RLY-23")
        assert f"batch_dims is at most axis and the rank of indices, found {batch}" in message


def test_both_choices_of_where_have_one_datatype() -> None:
    """RLY-23: a Boolean is not a number."""
    message = refused("where(True, 1f, False)", "RLY-23")
    assert "x and y have one datatype, found float32 and bool" in message
