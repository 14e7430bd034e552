"""Struct info of activations, normalisations, losses and attention, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

import relaxpy
from relaxpy import relax
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.relax import op as public
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import rank, tensor, tuple_of

X = tensor(2, N, 3)
C, ONE = tensor(N), tensor(1)
NORM = (X, C, C)
BATCH = (X, C, C, C, C)
BITS = tensor(2, dtype="bool")


def ints(*dims: object) -> rx.TensorStructInfo:
    return tensor(*dims, dtype="int64")


def batch_norm(*operands: rx.Expr, axis: int = 1) -> Any:
    return op.nn.batch_norm(*operands, axis=axis)


def instance_norm(*operands: rx.Expr, axes: Any = (2,)) -> Any:
    return op.nn.instance_norm(*operands, channel_axis=1, axes=axes)


def group_norm(*operands: rx.Expr, groups: int = 1, axes: Any = (2,)) -> Any:
    return op.nn.group_norm(*operands, num_groups=groups, channel_axis=1, axes=axes)


def each_loss(p: rx.Expr, t: rx.Expr) -> Any:
    return op.nn.nll_loss(p, t, reduction="none")


Q, K, V = tensor(2, N, 4, 8), tensor(2, M, 2, 8), tensor(2, M, 2, 5)
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (op.nn.selu, (X,), X),
    (op.nn.softplus, (UNKNOWN,), UNKNOWN),
    (op.nn.prelu, (X, C), X),
    (op.nn.prelu, (X, ONE), X),
    (lambda x, a: op.nn.prelu(x, a, 7), (OPEN, OPEN), OPEN),
    (op.nn.dropout, (X,), tuple_of(X, X)),
    (batch_norm, BATCH, tuple_of(X, C, C)),
    (batch_norm, (rank(3), C, C, C, OPEN), tuple_of(rank(3), C, OPEN)),
    (instance_norm, NORM, X),
    (group_norm, NORM, X),
    (
        lambda *x: group_norm(*x, groups=2),
        (tensor(2, N * 2, 3), rank(1), rank(1)),
        tensor(2, N * 2, 3),
    ),
    (group_norm, (OPEN, OPEN, OPEN), OPEN),
    (op.nn.cross_entropy_with_logits, (X, X), tensor()),
    (op.nn.cross_entropy_with_logits, (X, UNKNOWN), tensor(dtype="")),
    (op.nn.nll_loss, (tensor(2, 5, N), ints(2, N)), tensor()),
    (each_loss, (tensor(2, 5, N), ints(2, N)), tensor(2, N)),
    (each_loss, (tensor(2, 5, N), UNKNOWN), tensor(2, N)),
    (each_loss, (tensor(5), ints()), tensor()),
    (each_loss, (rank(3), UNKNOWN), rank(2)),
    (each_loss, (OPEN, ints(M)), OPEN),
    (op.grad.nll_loss_backward, (tensor(), tensor(2, 5), ints(2)), tensor(2, 5)),
    (
        lambda *v: op.grad.nll_loss_backward(*v, reduction="none"),
        (tensor(2, N), tensor(2, 3, 5), ints(2, 5)),
        tensor(2, 3, 5),
    ),
    (op.nn.attention, (Q, K, V), tensor(2, N, 4, 5)),
    (op.nn.attention, (Q, K, OPEN), rank(4)),
    (op.nn.attention, (Q, K, V, tensor(2, 1, N, M)), tensor(2, N, 4, 5)),
    (op.nn.attention_bias, (Q, K, V, rank(4)), tensor(2, N, 4, 5)),
    (lambda *x: op.nn.attention_var_len(*x, 7), (Q, K, V, ints(3)), tensor(2, N, 4, 5)),
    (public.nn.relu6, (X,), X),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (op.nn.selu, (ints(2),), "data holds floats"),
    (op.nn.softplus, (ints(2),), "data holds floats"),
    (op.nn.prelu, (tensor(2, 3), tensor(2)), "alpha (2,) has 2 slopes, but axis 1 of data (2, 3)"),
    (op.nn.prelu, (tensor(2, 3), tensor(2, 3)), "alpha is a vector"),
    (op.nn.prelu, (tensor(2, 3), ints(3)), "alpha has the datatype of data"),
    (op.nn.prelu, (tensor(2), ONE), "axis 1 is out of range for rank 1"),
    (batch_norm, (X, C, C, C, tensor(N + 1)), "moving_var (n + 1,) has n + 1 elements, but axis 1"),
    (batch_norm, (X, C, ints(N), C, C), "beta has the datatype of data, found int64 and float32"),
    (batch_norm, (ints(2, 3), C, C, C, C), "data holds floats"),
    (lambda *x: batch_norm(*x, axis=3), BATCH, "axis 3 is out of range for rank 3"),
    (instance_norm, (X, X, C), "gamma is a vector with one element for each channel"),
    (lambda *x: instance_norm(*x, axes=(2, 2)), NORM, "axes: 2 occurs twice"),
    (lambda *x: group_norm(*x, groups=0), NORM, "num_groups is positive, found 0"),
    (
        lambda *x: group_norm(*x, groups=2),
        (tensor(2, 5), tensor(5), tensor(5)),
        "axes: 2 is out of range",
    ),
    (
        lambda *x: group_norm(*x, groups=2, axes=()),
        (tensor(2, 5), tensor(5), tensor(5)),
        "5 channels, which are not 2",
    ),
    (lambda *x: group_norm(*x, axes=(1,)), NORM, "along the channel axis 1"),
    (
        op.nn.cross_entropy_with_logits,
        (tensor(2, 3), tensor(2, 4)),
        "predictions (2, 3) is 3, of labels (2, 4) 4",
    ),
    (op.nn.cross_entropy_with_logits, (tensor(2, 3), tensor(2)), "have one rank"),
    (op.nn.nll_loss, (tensor(2, 3), tensor(2)), "targets holds integers"),
    (op.nn.nll_loss, (tensor(2, 3), ints(2, 3)), "targets has rank 1 for predictions"),
    (op.nn.nll_loss, (tensor(2, 3), ints(3)), "shape (2,) for predictions (2, 3), found (3,)"),
    (op.nn.nll_loss, (tensor(), ints()), "predictions has rank 1 at least"),
    (
        op.nn.nll_loss,
        (tensor(2, 3), ints(2), tensor(4)),
        "weights (4,) has 4 elements, but predictions (2, 3)",
    ),
    (op.nn.nll_loss, (tensor(2, 3), ints(2), ints(3)), "weights has the datatype of predictions"),
    (op.nn.nll_loss, (tensor(2, 3), ints(2), tensor(3, 1)), "weights is a vector"),
    (
        op.grad.nll_loss_backward,
        (tensor(2), tensor(2, 3), ints(2)),
        "output_grad is as the result of nll_loss",
    ),
    (
        lambda *v: op.grad.nll_loss_backward(*v, reduction="none"),
        (tensor(2, 4), tensor(2, 3, 5), ints(2, 5)),
        "output_grad is as the result of nll_loss",
    ),
    (op.nn.attention, (tensor(2, 3), K, V), "query has rank 4 (batch, sequence, heads, width)"),
    (op.nn.attention, (Q, tensor(3, M, 2, 8), V), "the batches of query and key are equal"),
    (
        op.nn.attention,
        (Q, tensor(2, M, 3, 8), tensor(2, M, 3, 5)),
        "divide those of query, found 3 and 4",
    ),
    (
        op.nn.attention,
        (Q, tensor(2, M, 2, 7), V),
        "found 8 and 7: query is (2, n, 4, 8), key is (2, m, 2, 7)",
    ),
    (op.nn.attention, (Q, K, V, tensor(2, 3, N, M)), "bias (2, 3, n, m) is 1 or 4, found 3"),
    (op.nn.attention_bias, (Q, K, V, tensor(2, N)), "bias has rank 4"),
    (lambda *x: op.nn.attention(*x, window_size=0), (Q, K, V), "window_size is positive, found 0"),
    (lambda *x: op.nn.attention_var_len(*x, 7), (Q, K, V, tensor(3)), "seqstart_q holds integers"),
    (lambda *x: op.nn.attention_var_len(*x, 7), (Q, K, V, ints(3, 1)), "seqstart_q is a vector"),
    (op.grad.attention_var_len_backward, (X, Q, K, V, ints(3)), "output_grad has rank 4"),
    (op.grad.attention_var_len_backward, (Q, Q, K, V, tensor(3)), "seqstart_q holds integers"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


def test_attention_with_a_bias_is_a_call_of_attention_bias() -> None:
    q, k, v, bias = (
        rx.Var(name, sinfo)
        for name, sinfo in zip("qkvb", (Q, K, V, tensor(2, 1, N, M)), strict=True)
    )
    biased = op.nn.attention(q, k, v, bias, causal_mask="TopLeft")
    assert structural_equal(
        biased, op.nn.attention_bias(q, k, v, bias, causal_mask="TopLeft"), map_free_vars=True
    )
    assert biased.op == op.nn.attention_bias.op
    assert op.nn.attention(q, k, v, scale=0.5).op == op.nn.attention.op


def test_attention_without_groups_of_heads_is_two_products_of_matrices() -> None:
    q, k, v = (
        rx.Var(name, tensor(2, N, 4, width)) for name, width in zip("qkv", (8, 8, 5), strict=True)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", (q, k, v)):
        builder.emit_func_output(builder.emit(op.nn.attention(q, k, v)))
    source = relaxpy.compile(builder.finalize()).source
    assert source.count("np.matmul(") == 2
    assert "contract" not in source
    assert "reshape" not in source
