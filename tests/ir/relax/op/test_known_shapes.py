"""What is known of a result where operands have shape variables, or sizes that may yet differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxpy import compile, relax
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.op.test_rules import Infos, Made, check, refused
from tests.ir.relax.sinfos import rank, shape, tensor, tuple_of

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def shaped(*sizes: Any, ndim: int = -1, dtype: str = "float32") -> rx.TensorStructInfo:
    """A tensor whose shape is a variable of these dimensions."""
    sinfo = shape(*sizes) if sizes else rx.ShapeStructInfo(None, ndim)
    return rx.TensorStructInfo(rx.Var("s", sinfo), dtype)


X4, X, COLUMNS = shaped(ndim=4), shaped(), shaped(ndim=2)
INDICES, BYTES = shaped(ndim=2, dtype="int64"), shaped(2, N, dtype="int8")
IMAGES, CHANNELS, OTHERS = tensor(2, N, 4, 5), tensor(N), tensor(M)
UNTYPED = rx.TensorStructInfo((1, 2, 3, 4), VOID)  # type: ignore[arg-type]
Q = tensor(1, 2, 3, 4)


def layer_norm(*v: Any) -> Any:
    return op.nn.layer_norm(*v, axes=[2, 3])


def batch_norm(*v: Any) -> Any:
    return op.nn.batch_norm(*v, axis=1)


def nll(*v: Any) -> Any:
    return op.nn.nll_loss(*v, reduction="none")


def blocked_pool(x: Any) -> Any:
    return op.nn.max_pool2d(x, layout="NCHW16c", out_layout="NHWC")


def blocked_conv(x: Any, w: Any) -> Any:
    return op.nn.conv2d(x, w, data_layout="NCHW16c", out_layout="NCHW")


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(
    ("make", "sinfos", "expected"),
    [
        (op.add, (shaped(N, 3), shaped(1, 3)), tensor(N, 3)),
        (op.less, (shaped(N, 1), tensor(3)), tensor(N, 3, dtype="bool")),
        (op.add, (shaped(ndim=2), tensor(2, 3)), rank(2)),
        (op.add, (X, X), X),
        (layer_norm, (X4, COLUMNS, shaped(ndim=2)), X4),
        (layer_norm, (X, COLUMNS, COLUMNS), X),
        (layer_norm, (tensor(2, 3, N, 5), COLUMNS, COLUMNS), tensor(2, 3, N, 5)),
        (layer_norm, (tensor(2, 3, N, 5), tensor(M, 5), tensor(N, 5)), rank(4)),
        (lambda *v: op.nn.rms_norm(*v, axes=[2, 3]), (X4, COLUMNS), X4),
        (batch_norm, (IMAGES, *[CHANNELS] * 4), tuple_of(IMAGES, CHANNELS, CHANNELS)),
        (batch_norm, (rank(4), *[CHANNELS] * 4), tuple_of(rank(4), CHANNELS, CHANNELS)),
        (batch_norm, (IMAGES, OTHERS, *[CHANNELS] * 3), tuple_of(rank(4), rank(1), rank(1))),
        (op.gather_elements, (tensor(2, 3), INDICES), rx.TensorStructInfo(INDICES.shape)),
        (op.dequantize, (BYTES, CHANNELS, CHANNELS), rx.TensorStructInfo(BYTES.shape, "float32")),
        (lambda x: op.layout_transform(x, lambda i, j: (j, i)), (shaped(N, 3),), tensor(3, N)),
        (lambda x: op.ccl.allgather(x, 2), (shaped(N, 3),), tensor(N * 2, 3)),
        (nll, (tensor(N, 5, 4), rank(2, "int64")), tensor(N, 4)),
        (nll, (rank(3), tensor(N, 4, dtype="int64")), rank(2)),
        (
            nll,
            (rx.TensorStructInfo(dtype="float32"), tensor(N, dtype="int64")),
            rx.TensorStructInfo(dtype="float32"),
        ),
        (nll, (tensor(3, 5), tensor(3, dtype="bool")), tensor(3)),
        (op.nn.nll_loss, (tensor(3, 5), rank(1, "int64"), rank(1, VOID)), tensor(dtype=VOID)),
        (op.nn.attention, (Q, UNTYPED, Q), Q),
        (blocked_pool, (tensor(N, 2, 8, 8, M),), tensor(N, 8, 8, 32)),
        (blocked_conv, (tensor(N, 2, 8, 8, M), tensor(4, 32, 1, 1)), tensor(N, 4, 8, 8)),
    ],
)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


@pytest.mark.rule("DER-36")
def test_what_is_known_to_differ_is_refused() -> None:
    refused(op.add, (shaped(N, 3), shaped(N, 4)), "do not broadcast")
    refused(batch_norm, (IMAGES, tensor(N + 1), *[CHANNELS] * 3), "has n channels")
    refused(nll, (tensor(3, 5), tensor(3)), "targets holds integers")
    refused(blocked_pool, (tensor(N, 2, 8, 8, 4),), "blocks in NCHW16c have 16")


def test_symbolic_blocks_are_compared_with_those_of_the_layout_when_values_arrive() -> None:
    builder, x = relax.BlockBuilder(), rx.Var("x", tensor(1, 2, 3, 3, M))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(blocked_pool(x)))
    run = compile(builder.get())["main"]
    values = np.arange(1 * 2 * 3 * 3 * 16, dtype="float32").reshape(1, 2, 3, 3, 16)
    whole = values.transpose(0, 2, 3, 1, 4).reshape(1, 3, 3, 32)
    np.testing.assert_array_equal(run(values), whole)
    with pytest.raises(RuntimeCheckError, match="blocks in NCHW16c have 16"):
        run(values[..., :4])


def test_targets_of_a_loss_may_be_truths() -> None:
    scores = np.array([[1, -2, 3], [4, 5, -6]], "float32")
    builder = relax.BlockBuilder()
    operands = [rx.Var("x", tensor(2, 3)), rx.Var("y", tensor(2, dtype="bool"))]
    with builder.function("main", operands):
        builder.emit_func_output(builder.emit(nll(*operands)))
    result = compile(builder.get())["main"](scores, np.array([True, False]))
    np.testing.assert_array_equal(result, [2, -4])
