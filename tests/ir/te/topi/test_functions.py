"""Functions of topi that no operator uses, beside their definitions in NumPy."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import special

from relaxpy import topi
from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.cases.case import Array, floats, integers
from tests.ir.te.topi.test_topi import evaluate_all as evaluate
from tests.rows import table

Row = tuple[str, Callable[..., Any], Sequence[Array], Callable[..., Any]]


def rows(text: str, names: dict[str, Any]) -> list[Row]:
    """The rows of a table of lines `LABEL <- ARRAYS : CALL => VALUE` on arrays `v0`, `v1`, …"""
    found: list[Row] = []
    for label, arrays, call, value in table(text):
        call, value = (partial(_evaluated, side, names) for side in (call, value))
        found.append((label, call, eval(f"[{arrays}]", globals() | names), value))
    return found


def _evaluated(text: str, names: dict[str, Any], *values: Any) -> Any:
    return eval(text, globals() | names | {f"v{k}": value for k, value in enumerate(values)})


def _products() -> list[Row]:
    a, b, bias = floats(3, 4), floats(5, 4, seed=1), floats(5, seed=2)
    x, y = floats(2, 3, 4), floats(2, 5, 4, seed=1)
    z = floats(4, 3, 5, seed=3)
    half = floats(3, 4, dtype="float16")
    return rows(
        """
dense <- a, b : topi.nn.dense(v0, v1) => v0 @ v1.T
dense bias <- a, b, bias : topi.nn.dense(v0, v1, v2) => v0 @ v1.T + v2
dense in float32 <- half, half : topi.nn.dense(v0, v1, None, "float32")
    => v0.astype("float32") @ v1.T.astype("float32")
matmul transposed first <- a, floats(3, 2, seed=5) : topi.matmul(v0, v1, True) => v0.T @ v1
matmul transposed second <- x, y : topi.matmul(v0, v1, transp_b=True) => v0 @ v1.transpose(0, 2, 1)
slices of a size <- x : topi.strided_slice(v0, [1, 0], [2, -1], [7, 7], [2, 1], "size")
    => v0[:, :, 1:3]
batch_matmul <- x, y : topi.nn.batch_matmul(v0, v1) => v0 @ v1.transpose(0, 2, 1)
batch_matmul transposed <- x, y.transpose(0, 2, 1)[:, :3].copy()
    : topi.nn.batch_matmul(v0, v1, (2, 4, 5), None, True, False) => v0.transpose(0, 2, 1) @ v1
batch_matmul of one <- x, y[:1] : topi.nn.batch_matmul(v0, v1) => v0 @ v1.transpose(0, 2, 1)
tensordot axes <- x, z : topi.tensordot(v0, v1, ((2, 1), (0, -2)))
    => np.tensordot(v0, v1, ((2, 1), (0, -2)))
tensordot 1 <- x, z : topi.tensordot(v0, v1, 1) => np.tensordot(v0, v1, 1)
tensordot 0 <- a, bias : topi.tensordot(v0, v1, 0) => np.tensordot(v0, v1, 0)
""",
        locals(),
    )


def depth_to_space(x: Array, b: int, mode: str) -> Array:
    n, c, h, w = x.shape
    out = np.zeros((n, c // b**2, h * b, w * b), x.dtype)
    depth = c // b**2
    for channel in range(depth):
        for i in range(b):
            for j in range(b):
                k = (i * b + j) * depth + channel if mode == "DCR" else (channel * b + i) * b + j
                out[:, channel, i::b, j::b] = x[:, k]
    return out


def space_to_batch(x: Array, blocks: tuple[int, ...], before: Any, after: Any) -> Array:
    rest = [(0, 0)] * (x.ndim - 1 - len(blocks))
    whole = np.pad(x, [(0, 0), *zip(before, after, strict=True), *rest])
    parts = [
        whole[(slice(None), *(slice(o, None, b) for o, b in zip(offset, blocks, strict=True)))]
        for offset in np.ndindex(*blocks)
    ]
    return np.concatenate(parts)


def _blocks() -> list[Row]:
    image = floats(2, 8, 3, 2)
    turned = image.transpose(0, 2, 3, 1).copy()
    wide = floats(1, 2, 4, 6)
    sequence = floats(2, 4, 6, 3)
    return [
        *(
            (
                f"depth_to_space {mode}",
                lambda v, m=mode: topi.nn.depth_to_space(v, 2, mode=m),
                (image,),
                lambda v, m=mode: depth_to_space(v, 2, m),
            )
            for mode in ("DCR", "CRD")
        ),
        *rows(
            """
depth_to_space NHWC <- turned : topi.nn.depth_to_space(v0, 2, "NHWC")
    => depth_to_space(v0.transpose(0, 3, 1, 2), 2, "DCR").transpose(0, 2, 3, 1)
space_to_depth <- wide : depth_to_space_back(v0) => v0
space_to_depth NHWC <- floats(1, 2, 4, 3) : topi.nn.space_to_depth(v0, 2, "NHWC")
    => np.concatenate([v0[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], 3)
space_to_batch_nd <- sequence : topi.nn.space_to_batch_nd(v0, [2, 3], [1, 0], [1, 3])
    => space_to_batch(v0, (2, 3), (1, 0), (1, 3))
batch_to_space_nd <- sequence
    : topi.nn.batch_to_space_nd(topi.nn.space_to_batch_nd(v0, [2, 3], [1, 0], [1, 3]), [2, 3], [1,
    1], [2, 3]) => v0[:, :3, 1:]
flatten <- image : topi.nn.flatten(v0) => v0.reshape(2, 48)
upsampling <- image : topi.nn.upsampling(v0, 2, 3) => v0.repeat(2, 2).repeat(3, 3)
upsampling to a size <- turned : topi.nn.upsampling(v0, 1, 1, "NHWC", output_shape=[6, 4])
    => v0.repeat(2, 1).repeat(2, 2)
upsampling aligned <- floats(1, 1, 2, 1)
    : topi.nn.upsampling(v0, 1.5, 1, method="bilinear", align_corners=True)
    => np.stack([v0[:, :, 0], v0[:, :, :].mean(2), v0[:, :, 1]], 2)
layout_transform <- image : topi.layout_transform(v0, "NCHW", "NCHW4c")
    => v0.reshape(2, 2, 4, 3, 2).transpose(0, 1, 3, 4, 2)
layout_transform back <- floats(2, 2, 3, 2, 4) : topi.layout_transform(v0, "NCHW4c", "NHWC")
    => v0.transpose(0, 2, 3, 1, 4).reshape(2, 3, 2, 8)
layout_transform with padding <- floats(2, 4) : topi.layout_transform(v0, "NC", "CN3c")
    => np.pad(v0, ((0, 0), (0, 2))).reshape(2, 2, 3).transpose(1, 0, 2)
""",
            locals(),
        ),
    ]


def depth_to_space_back(v: Tensor) -> Tensor:
    result: Tensor = topi.nn.depth_to_space(topi.nn.space_to_depth(v, 2), 2)
    return result


def lrn(x: Array, size: int, axis: int, alpha: float, beta: float, bias: float) -> Array:
    wide = x.astype("float64")
    out = np.zeros_like(wide)
    n = x.shape[axis]
    for k in range(n):
        window = np.take(wide, range(max(0, k - size // 2), min(n, k + size // 2 + 1)), axis)
        scale = (bias + alpha / size * (window**2).sum(axis, keepdims=True)) ** beta
        place = tuple(slice(k, k + 1) if a == axis else slice(None) for a in range(x.ndim))
        out[place] = wide[place] / scale
    return out


def _elements() -> list[Row]:
    x = floats(3, 4)
    erf, softmax = special.erf, special.softmax
    return rows(
        """
lrn <- floats(2, 5, 3) : topi.nn.lrn(v0, 3) => lrn(v0, 3, 1, 0.0001, 0.75, 2)
lrn of an axis <- floats(2, 2, 4) : topi.nn.lrn(v0, 5, 2, 0.5, 0.5, 1.0)
    => lrn(v0, 5, 2, 0.5, 0.5, 1.0)
elemwise_sum <- x, x, -3 * x : topi.elemwise_sum((v0, v1, v2)) => sum((v0, v1, v2))
elemwise_sum of one <- x : topi.elemwise_sum([v0]) => np.copy(v0)
reinterpret <- x : topi.reinterpret(v0, "int32") => v0.view("int32")
shape <- floats(3, 0, 2) : topi.shape(v0) => np.array([3, 0, 2], "int32")
tensor_size <- x : topi.tensor_size(v0, "int64") => np.array(12)
""",
        locals(),
    )


def reverse_sequence(x: Array, lengths: Array, axis: int, batch: int) -> Array:
    out = np.moveaxis(x.copy(), (batch, axis), (0, 1))
    for line, length in zip(out, lengths, strict=True):
        line[: max(length, 0)] = line[: max(length, 0)][::-1].copy()
    return np.moveaxis(out, (0, 1), (batch, axis))


def set_diagonals(x: Array, rows: Array, low: int, high: int, align: str) -> Array:
    out = x.copy()
    n, m = x.shape[-2:]
    for i in range(n):
        for j in range(m):
            k = j - i
            if low <= k <= high:
                size = min(n + min(k, 0), m - max(k, 0))
                side = align.split("_")[0 if k >= 0 else 1]
                shift = rows.shape[-1] - size if side == "RIGHT" else 0
                out[..., i, j] = rows[..., high - k, (i if k >= 0 else j) + shift]
    return out


def _sequences() -> list[Row]:
    x = floats(3, 4, 2)
    lengths = np.array([2, 0, 4, 1], "int32")
    matrix = floats(2, 3, 4)
    ragged = [
        (
            f"matrix_set_diag {low} to {high} {align}",
            lambda v, d, k=(low, high), a=align: topi.matrix_set_diag(v, d, k, a),
            (matrix, floats(2, high - low + 1, longest, seed=4)),
            lambda v, d, k=(low, high), a=align: set_diagonals(v, d, *k, a),
        )
        for low, high, longest in ((-1, 1, 3), (0, 3, 3), (-2, -1, 2))
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
    ]
    return [
        *ragged,
        *rows(
            """
matrix_set_diag <- matrix, floats(2, 3, seed=4) : topi.matrix_set_diag(v0, v1)
    => set_diagonals(v0, v1[:, None], 0, 0, "LEFT_LEFT")
matrix_set_diag 2 <- matrix, floats(2, 2, seed=4) : topi.matrix_set_diag(v0, v1, 2)
    => set_diagonals(v0, v1[:, None], 2, 2, "LEFT_LEFT")
sequence_mask <- x, lengths : topi.sequence_mask(v0, v1, -1.0)
    => np.where((np.arange(3)[:, None] < v1)[..., None], v0, -1)
sequence_mask of axis 1 <- x, lengths[:3] : topi.sequence_mask(v0, v1, axis=1)
    => np.where((np.arange(4) < v1[:, None])[..., None], v0, 0)
reverse_sequence <- x, np.array([3, 0, 9], "int64") : topi.reverse_sequence(v0, v1)
    => reverse_sequence(v0, v1, 1, 0)
reverse_sequence of axis 0 <- x, lengths : topi.reverse_sequence(v0, v1, 0, -2)
    => reverse_sequence(v0, v1, 0, 1)
dynamic_strided_slice <- floats(5, 4), np.array([1, 9], "int64"), np.array([5, 1], "int64"),
    np.array([2, -1], "int64") : topi.dynamic_strided_slice(v0, v1, v2, v3, (2, 2))
    => v0[1:5:2, :1:-1]
sliding_window <- floats(2, 5, 3) : topi.sliding_window(v0, 1, [2, 1], [2, 1])
    => np.lib.stride_tricks.sliding_window_view(v0, (2, 1), (1, 2))[:, ::2]
unravel_index <- np.array([0, 5, 23], "int64"), np.array([2, 3, 4], "int64")
    : topi.unravel_index(v0, v1) => np.stack(np.unravel_index(v0, v1))
unravel_index of one <- np.array(7, "int32"), np.array([2, 5], "int32") : topi.unravel_index(v0, v1)
    => np.array(np.unravel_index(v0, v1))
sparse_to_dense <- np.array([[0, 1], [2, 3]], "int32"), floats(2)
    : topi.sparse_to_dense(v0, (3, 4), v1, 9) => sparse(v0, (3, 4), v1, 9)
sparse_to_dense of a vector <- np.array([4, 0], "int64"), np.array(7, "int32")
    : topi.sparse_to_dense(v0, (5,), v1) => sparse(v0[:, None], (5,), v1.repeat(2), 0)
sparse_to_dense of one <- np.array(2, "int64"), np.array(7, "int32")
    : topi.sparse_to_dense(v0, (5,), v1) => sparse(v0.reshape(1, 1), (5,), v1.reshape(1), 0)
""",
            locals(),
        ),
    ]


def sparse(indices: Array, shape: tuple[int, ...], values: Array, default: float) -> Array:
    out = np.full(shape, default, values.dtype)
    for place, value in zip(indices, values, strict=True):
        out[tuple(place)] = value
    return out


def _orders() -> list[Row]:
    x = floats(3, 5, 2)
    x[0, 1, 0] = np.nan
    ties = integers(4, 6, low=0, high=3)
    levels = np.sort(floats(7))
    lines = np.sort(floats(3, 5), 1)
    return rows(
        """
sort <- x : topi.sort(v0) => np.sort(v0)
sort down <- ties : topi.sort(v0, 1, 0) => -np.sort(-v0, 1)
argsort <- ties : topi.argsort(v0, axis=1, dtype="int64") => np.argsort(v0, 1, kind="stable")
argsort of the first <- ties, np.array([0, 3, 6, 2], "int32") : topi.argsort(v0, v1, 1, 1, "int32")
    => np.stack([[*np.argsort(r[:k], kind="stable"), *range(k, 6)] for r, k in zip(v0, v1,
    strict=True)])
topk <- ties : topi.topk(v0, 2)
    => [-np.sort(-v0, 1)[:, :2], np.argsort(-v0, 1, kind="stable")[:, :2]]
topk values <- ties : topi.topk(v0, 9, 0, "values", True) => np.sort(v0, 0)
topk indices <- ties : topi.topk(v0, 0, 0, "indices", True, "int32")
    => np.argsort(v0, 0, kind="stable")
searchsorted <- levels, np.concatenate([levels, floats(3, seed=5)]) : topi.searchsorted(v0, v1)
    => np.searchsorted(v0, v1)
searchsorted of lines <- lines, lines[:, 1:4].copy() : topi.searchsorted(v0, v1, True, "int32")
    => np.stack([np.searchsorted(a, b, "right") for a, b in zip(v0, v1, strict=True)])
""",
        locals(),
    )


def _signatures() -> list[Row]:
    """Calls by the parameters that TVM's functions have."""
    x = floats(2, 3, 4)
    where = integers(3, 2, low=-6, high=9)
    inside = integers(2, 3, 2, low=0, high=4)
    image, line = floats(1, 2, 5), floats(3, 2, 3, seed=1)
    return rows(
        """
expand_dims of two <- x : topi.expand_dims(v0, -1, 2) => v0[..., None, None]
take <- x, where : topi.take(a=v0, indices=v1, axis=2, mode="wrap")
    => np.take(v0, v1, 2, mode="wrap")
take in batches <- x, inside : topi.take(v0, v1, 2, 2, "clip") => np.take_along_axis(v0, v1, 2)
take in one batch <- x, inside[:, 0] : topi.take(v0, v1, 2, -1)
    => np.stack([a[:, b] for a, b in zip(v0, v1)])
shapes <- x[:1] : topi.transpose(a=topi.reshape(a=topi.squeeze(a=v0), newshape=(6, 2)), axes=(1, 0))
    => v0.reshape(6, 2).T
joined parts <- x : topi.concatenate(a_tuple=topi.split(ary=v0, indices_or_sections=2, axis=2))
    => np.concatenate(np.split(v0, 2, 2))
slices <- x : topi.broadcast_to(data=topi.strided_slice(a=v0, begin=[0, 1], end=[1, 3]), shape=(5,
    2, 4)) => np.broadcast_to(v0[:1, 1:], (5, 2, 4))
reductions <- x : topi.sum(data=topi.max(data=v0, axis=1), axis=0) => v0.max(1).sum(0)
positions <- x : topi.argmax(data=v0, axis=1) => v0.argmax(1)
arange <- x : topi.add(topi.arange(4), v0) => v0 + np.arange(4)
arange down <- x : topi.add(topi.arange(7, 0.5, -2), v0) => v0 + np.arange(7, 0.5, -2)
arange of integers <- where : topi.add(topi.arange(3, 8, step=3, dtype="int64"), v0) => v0 + [3, 6]
conv1d <- image, line : topi.nn.conv1d(v0, v1) => topi_conv1d(v0, v1, 0)
conv1d same <- image, line : topi.nn.conv1d(v0, v1, padding="SAME") => topi_conv1d(v0, v1, 1)
""",
        locals(),
    )


def topi_conv1d(image: Array, kernel: Array, padding: int) -> Array:
    padded = np.pad(image, ((0, 0), (0, 0), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, 2)
    return np.einsum("ncwk,ock->now", windows, kernel)


ROWS = [*_products(), *_blocks(), *_elements(), *_sequences(), *_orders(), *_signatures()]


@pytest.mark.parametrize(
    ("function", "arrays", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS]
)
def test_a_function_is_that_of_numpy(function, arrays, expected) -> None:
    wanted = expected(*arrays)
    found = evaluate(function, *arrays)
    for a, b in zip(found, wanted if isinstance(wanted, list) else [wanted], strict=True):
        assert a.shape == np.shape(b)
        tolerance = 4e-3 if a.dtype == "float16" else 1e-5
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-5)


VECTOR, MATRIX, IMAGE = (te.placeholder(shape) for shape in ((3,), (3, 4), (1, 6, 2, 2)))
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: topi.nn.batch_matmul(MATRIX, MATRIX), "rank 3, found ranks 2 and 2"),
    (
        lambda: topi.nn.batch_matmul(
            te.placeholder((1, 2, 3)), te.placeholder((1, 4, 3)), (1, 2, 3)
        ),
        r"oshape is \(1, 2, 4\), found \(1, 2, 3\)",
    ),
    (lambda: topi.tensordot(MATRIX, MATRIX, ((0,), (0, 1))), "axes are pairs"),
    (
        lambda: topi.tensordot(MATRIX, MATRIX, 1),
        r"axis 1 of \(3, 4\) and axis 0 of \(3, 4\) differ",
    ),
    (lambda: topi.nn.depth_to_space(MATRIX, 2), "rank 4 and a positive block size, found rank 2"),
    (lambda: topi.nn.depth_to_space(IMAGE, 2, "NWHC"), "layout is 'NCHW' or 'NHWC', found 'NWHC'"),
    (lambda: topi.nn.depth_to_space(IMAGE, 2, mode="X"), "mode is 'DCR' or 'CRD', found 'X'"),
    (lambda: topi.nn.space_to_depth(IMAGE, 0), "a positive block size, found rank 4 and 0"),
    (lambda: topi.nn.space_to_batch_nd(IMAGE, [2], [0, 0], [0]), "one positive block size and one"),
    (lambda: topi.nn.lrn(IMAGE, 4), "size is an odd number, found 4"),
    (lambda: topi.nn.mirror_pad(VECTOR, [1], mode="WRAP"), "mode is 'SYMMETRIC' or 'REFLECT'"),
    (
        lambda: topi.nn.pixel_shuffle(MATRIX, 2),
        "rank 3 or more and a positive factor, found rank 2",
    ),
    (lambda: topi.layout_transform(MATRIX, "NCHW", "NHWC"), "'NCHW' has 4 axes, the tensor has 2"),
    (lambda: topi.elemwise_sum([]), "one tensor at least"),
    (lambda: topi.reinterpret(MATRIX, "int64"), "reinterpret keeps the bits: float32 to int64"),
    (lambda: topi.sequence_mask(MATRIX, VECTOR, axis=2), "found ranks 2 and 1 and axis 2"),
    (
        lambda: topi.reverse_sequence(MATRIX, VECTOR, 1, 1),
        "two axes, found rank 1 and axes 1 and 1",
    ),
    (lambda: topi.sliding_window(MATRIX, 1, [2, 2], [1]), "for each of 1 axes"),
    (lambda: topi.take(MATRIX, MATRIX, 1, 2), "batch_dims is at most the axis, 1, found 2"),
    (lambda: topi.arange(0, 3, 0), "step is other than 0"),
    (
        lambda: topi.matrix_set_diag(MATRIX, VECTOR, (1, -1)),
        "diagonals 1 to -1, found ranks 2 and 1",
    ),
    (
        lambda: topi.dynamic_strided_slice(MATRIX, VECTOR, VECTOR, VECTOR, (2,)),
        r"vectors of bounds and 2 sizes, found ranks 1, 1 and 1 and shape \(2,\)",
    ),
    (lambda: topi.unravel_index(MATRIX, VECTOR), r"found shapes \(3, 4\) and \(3,\)"),
    (lambda: topi.sparse_to_dense(MATRIX, (3,), MATRIX), "takes one index for each value"),
    (lambda: topi.topk(VECTOR, ret_type="all"), "ret_type is 'both', 'values' or 'indices'"),
    (lambda: topi.searchsorted(MATRIX, VECTOR), "found ranks 2 and 1"),
    (
        lambda: topi.tensordot(MATRIX, MATRIX, 0.5),
        "axes is an integer or a list of lists of integers",
    ),
    (
        lambda: topi.nn.depth_to_space(te.placeholder((1, 8, 2, 3)), 3),
        "depth_to_space: a dimension of 8 is not a multiple of 9",
    ),
    (
        lambda: topi.nn.space_to_depth(te.placeholder((1, 8, 2, 3)), 2),
        "space_to_depth: a dimension of 3 is not a multiple of 2",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()


def test_symbolic_sizes() -> None:
    n = tir.Var("n", "int64")
    x = te.placeholder((n, 4, 6))
    windows = topi.sliding_window(x, 1, [2, 3], [1, 3])
    assert [str(size) for size in windows.shape] == ["n", *(f"T.int64({k})" for k in (3, 2, 2, 3))]
    assert str(topi.nn.flatten(te.placeholder((3, n, 2))).shape[1]) == "n * T.int64(2)"
    assert str(topi.nn.upsampling(te.placeholder((1, 2, n, 4)), 2, 2).shape[2]) == "n * T.int64(2)"
    blocks = topi.nn.space_to_batch_nd(te.placeholder((1, n)), [2], [0], [0])
    assert str(blocks.shape[1]) == "n // T.int64(2)"


def test_sizes_and_numbers_as_python_values() -> None:
    utils, n = topi.utils, tir.Var("n", "int64")
    assert utils.get_const_int(tir.IntImm("int64", 3) + 1) == utils.get_const_int(4) == 4
    assert utils.get_const_float(tir.FloatImm("float32", 0.5)) == 0.5
    assert utils.get_const_tuple((tir.IntImm("int32", 3), 2, n)) == (3, 2, n)
    for wrong in (lambda: utils.get_const_int(n), lambda: utils.get_const_int(0.5)):
        with pytest.raises(MisuseError, match="expected a constant integer, found"):
            wrong()
    with pytest.raises(MisuseError, match="expected a constant float, found n"):
        utils.get_const_float(n)
    with pytest.raises(MisuseError, match="expected a constant integer"):
        utils.get_const_tuple((0.5,))
    assert utils.equal_const_int(n - n + 2, 2)
    assert not utils.equal_const_int(n, 2)
    assert utils.simplify(n + 1 - n).value == 1
    assert utils.simplify(3) == 3
    assert utils.prod((2, 3)) == 6
    assert utils.get_const_int(utils.prod(())) == 1
    assert utils.get_const_int(utils.ceil_div(7, 2)) == 4
    assert utils.ravel_index((1, 2), (3, 4)) == 6
    assert utils.unravel_index(6, (3, 4)) == [1, 2]
    assert utils.get_shape((1, 2, 3), "NCW", "NWC") == (1, 3, 2)
    with pytest.raises(MisuseError, match="layouts order the axes of one shape, found 'NCW', 'NC'"):
        utils.get_shape((1, 2, 3), "NCW", "NC")


def test_numbers_as_tensors() -> None:
    matrix = np.array([[1, 2], [3, 4], [5, 6]], "int32")
    for array, make in ((matrix, topi.utils.const_matrix), (matrix[0], topi.utils.const_vector)):
        [found] = evaluate(lambda x, a=array, make=make: topi.add(make(a), x), np.array(1, "int32"))
        np.testing.assert_array_equal(found, array + 1)
    with pytest.raises(MisuseError, match="const_vector takes an array of rank 1, found rank 2"):
        topi.utils.const_vector(matrix)
