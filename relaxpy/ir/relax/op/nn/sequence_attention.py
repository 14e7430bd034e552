"""Scaled dot-product attention within packed sequences of different lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr
from relaxpy.ir.relax.op.definition.gradients import require_shape, tuple_fields
from relaxpy.ir.relax.op.definition.registry import R, find, register
from relaxpy.ir.relax.op.definition.rules import joint_dtype, refuse, require_integer, same
from relaxpy.ir.relax.op.nn.scaled_dot_product import (
    Causal,
    as_dtype,
    check_operands,
    check_window,
    group_size,
    score_factor,
)
from relaxpy.ir.te.topi.elementwise import accumulator
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence: its queries, keys and values as (batch, heads, length, width)."""

    rows: slice
    columns: slice
    query: Array
    key: Array
    value: Array
    weights: Array
    """The attention weights, (batch, heads, queries, keys)."""


@dataclass(frozen=True, slots=True)
class _Sequences:
    """The operands of a call, which is computed in float32, or in float64 if they are that wide."""

    queries: Array
    keys: Array
    values: Array
    starts: Array
    key_starts: Array
    scale: float | None
    causal_mask: Causal
    window_size: int | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The datatype of all intermediate results."""
        is_double = self.queries.dtype == np.float64
        return np.dtype(np.float64 if is_double else np.float32)

    @property
    def group(self) -> int:
        """The number of query heads per key head (grouped-query attention)."""
        heads, shared = self.queries.shape[2], self.keys.shape[2]
        if heads and (not shared or heads % shared):
            raise RuntimeCheckError(
                "the number of heads of queries is a multiple of that of keys, found "
                f"{heads} and {shared}",
                rule="DER-36",
            )
        return int(heads // max(shared, 1))

    @property
    def factor(self) -> Any:
        """The factor of the scores."""
        width = self.queries.shape[3]
        return self.dtype.type(self.scale if self.scale is not None else 1 / math.sqrt(width or 1))

    def by_head(self, x: Array, rows: slice) -> Array:
        """Some rows of (batch, length, heads, width), as (batch, heads, rows, width)."""
        return x[:, rows].astype(self.dtype).transpose(0, 2, 1, 3)

    def __iter__(self) -> Iterator[_Sequence]:
        ends, key_ends = (np.asarray(x).ravel() for x in (self.starts, self.key_starts))
        for (a, b), (c, d) in zip(pairwise(ends), pairwise(key_ends), strict=True):
            rows, columns = slice(a, b), slice(c, d)
            q = self.by_head(self.queries, rows)
            k, v = (
                np.repeat(self.by_head(x, columns), self.group, 1) for x in (self.keys, self.values)
            )
            scores = q @ k.swapaxes(2, 3) * self.factor
            weights = _softmax(scores, self._allowed(b - a, d - c))
            yield _Sequence(rows, columns, q, k, v, weights)

    def _allowed(self, queries: int, keys: int) -> Array:
        """The mask of the keys that each query attends to."""
        last = keys - queries if self.causal_mask == "BottomRight" else 0
        rows, columns = np.arange(queries)[:, None] + last, np.arange(keys)
        allowed = np.ones((queries, keys), bool)
        if self.causal_mask is not None:
            allowed &= columns <= rows
        if self.window_size is not None:
            allowed &= columns > rows - self.window_size
        return allowed


def _softmax(scores: Array, allowed: Array) -> Array:
    """The softmax over the allowed elements of each row; 0 where there is none."""
    low = np.finfo(scores.dtype).min
    top = np.where(allowed, scores, low).max(-1, keepdims=True, initial=low)
    power = np.where(allowed, np.exp(np.where(allowed, scores - top, 0)), 0)
    total = power.sum(-1, keepdims=True)
    weights: Array = np.divide(power, total, out=np.zeros_like(power), where=total != 0)
    return weights


def _attend(
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    max_seqlen_q: Any,
    seqstart_k: Any = (),
    max_seqlen_k: Any = (),
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> Array:
    """Attention within each of the sequences."""
    key_starts = seqstart_q if isinstance(seqstart_k, tuple) else seqstart_k
    operands = _Sequences(
        queries, keys, values, seqstart_q, key_starts, scale, causal_mask, window_size
    )
    out = np.zeros((*queries.shape[:3], values.shape[3]), operands.dtype)
    for s in operands:
        out[:, s.rows] = (s.weights @ s.value).transpose(0, 2, 1, 3)
    return out.astype(queries.dtype)


def _gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    operator = find(cast("Op", call.op))
    assert operator is not None
    operands = operator.operands(call)
    tensors, starts = call.args[:3], (operands[3], *operands[5:6])
    grads = builder.emit(
        R.grad.attention_var_len_backward(gradient, *tensors, *starts, **call.attrs)
    )
    out: list[rx.Expr] = [rx.TupleGetItem(grads, k) for k in range(3)]
    return [*out, *map(R.grad.no_grad, call.args[3:])]


def _check_starts(**starts: rx.TensorStructInfo | None) -> None:
    for name, sinfo in starts.items():
        if sinfo is not None:
            require_integer(sinfo.dtype, name, sinfo)
            if sinfo.ndim not in (-1, 1):
                raise refuse(f"{name} is a vector, found {sinfo}", sinfo)


@register(
    "relax.nn.attention_var_len", precision_policy=0, pure=True, runtime=_attend, gradient=_gradient
)
def attention_var_len(
    queries: rx.TensorStructInfo,
    keys: rx.TensorStructInfo,
    values: rx.TensorStructInfo,
    seqstart_q: rx.TensorStructInfo,
    max_seqlen_q: rx.TensorStructInfo | rx.PrimStructInfo,
    seqstart_k: rx.TensorStructInfo | None = None,
    max_seqlen_k: rx.TensorStructInfo | rx.PrimStructInfo | None = None,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> rx.TensorStructInfo:
    """`attention` within each of several packed (concatenated) sequences.

    Sequence i has the queries from seqstart_q[i] to seqstart_q[i + 1], and likewise the keys, by
    default those of the queries. The largest lengths are not used.

    Shapes:
        queries, keys, values   as those of `attention`, the sequences joined
        seqstart_q, seqstart_k  (sequences + 1,), integers in ascending order, from 0 on
        result                  as that of `attention`
    Errors:
        StructInfoError: as for `attention`, or the starts are known not to be integers or a vector.
    """
    check_window(window_size)
    _check_starts(seqstart_q=seqstart_q, seqstart_k=seqstart_k)
    return check_operands(queries, keys, values)


def _attend_backward(
    output_grad: Array,
    queries: Array,
    keys: Array,
    values: Array,
    seqstart_q: Array,
    seqstart_k: Any = (),
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of queries, keys and values, sequence by sequence."""
    key_starts = seqstart_q if isinstance(seqstart_k, tuple) else seqstart_k
    operands = _Sequences(
        queries, keys, values, seqstart_q, key_starts, scale, causal_mask, window_size
    )
    out = tuple(np.zeros(x.shape, operands.dtype) for x in (queries, keys, values))

    def by_key_head(gradient: Array) -> Array:
        """The gradients of the heads of queries that share a head of keys, added."""
        batch, heads, length, width = gradient.shape
        shape = (batch, heads // max(operands.group, 1), operands.group, length, width)
        total: Array = gradient.reshape(shape).sum(2).transpose(0, 2, 1, 3)
        return total

    for s in operands:
        g = operands.by_head(output_grad, s.rows)
        to_weights = g @ s.value.swapaxes(2, 3)
        mean = (to_weights * s.weights).sum(-1, keepdims=True)
        to_scores = s.weights * (to_weights - mean) * operands.factor
        out[0][:, s.rows] = (to_scores @ s.key).transpose(0, 2, 1, 3)
        out[1][:, s.columns] = by_key_head(to_scores.swapaxes(2, 3) @ s.query)
        out[2][:, s.columns] = by_key_head(s.weights.swapaxes(2, 3) @ g)
    query, key, value = (x.astype(queries.dtype) for x in out)
    return query, key, value


def _gradient_backward(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    grads = second_gradients(builder, call, tuple_fields(gradient, 3))
    return [*grads, *map(R.grad.no_grad, call.args[4:])]


@register(
    "relax.grad.attention_var_len_backward",
    pure=True,
    runtime=_attend_backward,
    gradient=_gradient_backward,
)
def attention_var_len_backward(
    output_grad: rx.TensorStructInfo,
    queries: rx.TensorStructInfo,
    keys: rx.TensorStructInfo,
    values: rx.TensorStructInfo,
    seqstart_q: rx.TensorStructInfo,
    seqstart_k: rx.TensorStructInfo | None = None,
    scale: float | None = None,
    causal_mask: Causal = None,
    window_size: int | None = None,
) -> rx.TupleStructInfo:
    """The gradients of queries, keys and values in `nn.attention_var_len`.

    Shapes:
        output_grad     as the result of `nn.attention_var_len`
        queries, keys, values, seqstart_q, seqstart_k  as for `nn.attention_var_len`
        result          a tuple of tensors as queries, keys and values
    Errors:
        StructInfoError: as for `nn.attention_var_len`, or output_grad has another rank or datatype.
    """
    check_window(window_size)
    _check_starts(seqstart_q=seqstart_q, seqstart_k=seqstart_k)
    check_operands(queries, keys, values)
    joint_dtype(output_grad, queries, ("output_grad", "queries"))
    if output_grad.ndim not in (-1, 4):
        raise refuse(f"output_grad has rank 4, found {output_grad}", output_grad)
    return rx.TupleStructInfo((queries, keys, values))


_NAME = "attention_var_len_backward"


def _positions(x: Expr, starts: Any, *, from_end: bool) -> tuple[Any, Any, Any]:
    """For each row of x its sequence, its position there, and whether it is in a sequence."""
    bounds = R.astype(starts, "int64")
    rows = R.arange(PrimValue(require_shape(x, _NAME)[1]))
    sequence = R.bucketize(rows, bounds, right=True)
    anchors = R.take(bounds, sequence if from_end else sequence - 1, axis=0, mode="clip")
    return sequence, rows - anchors, R.less(rows, R.max(bounds))


def _allowed(call: Call, queries: Expr, keys: Expr, starts: Sequence[Expr]) -> Any:
    """The mask (queries, keys) of the keys that each query attends to."""
    causal, window = call.attrs["causal_mask"], call.attrs["window_size"]
    from_end = causal == "BottomRight"
    sequence, row, is_query = _positions(queries, starts[0], from_end=from_end)
    key_sequence, column, _ = _positions(keys, starts[-1], from_end=from_end)
    row = R.expand_dims(row, 1)
    allowed = R.equal(R.expand_dims(sequence, 1), key_sequence)
    allowed = R.logical_and(allowed, R.expand_dims(is_query, 1))
    if causal is not None:
        allowed = R.logical_and(allowed, R.less_equal(column, row))
    if window is not None:
        allowed = R.logical_and(allowed, R.greater(column, row - window))
    return allowed


def second_gradients(builder: BlockBuilder, call: Call, moves: Sequence[Expr]) -> list[Expr]:
    """The gradients of a call's first four operands, from those of its three results.

    With the weights P, the call has the gradients of <g, P V>. Those of its operands are the
    gradients of their scalar product with `moves`: of how <g, P V> changes if queries, keys and
    values move in these directions.
    """
    gradient, queries, keys, values, *starts = call.args
    wide = accumulator(queries.struct_info.dtype)  # type: ignore[union-attr]
    sizes, key_sizes = require_shape(queries, _NAME), require_shape(keys, _NAME)
    groups = None if same(sizes[2], key_sizes[2]) else group_size(sizes[2], key_sizes[2])

    def by_head(x: Any, *, shared: bool = False) -> Any:
        """(batch, length, heads, width) as (batch, heads, length, width)."""
        x = as_dtype(x, wide)
        if shared and groups is not None:
            batch, length, heads, width = require_shape(x, _NAME)
            x = R.expand_dims(x, 3)
            x = R.broadcast_to(x, ShapeExpr((batch, length, heads, groups, width)))
            x = R.reshape(x, ShapeExpr((batch, length, sizes[2], width)))
        return builder.emit(R.permute_dims(x, [0, 2, 1, 3]))

    def like(x: Any, operand: Any, *, shared: bool = False) -> Any:
        """The gradient of an operand from that by head."""
        x = R.permute_dims(x, [0, 2, 1, 3])
        if shared and groups is not None:
            batch, length, heads, width = require_shape(operand, _NAME)
            x = R.sum(R.reshape(x, ShapeExpr((batch, length, heads, groups, width))), 3)
        return as_dtype(x, operand.struct_info.dtype)

    def transposed(x: Any) -> Any:
        return R.permute_dims(x, [0, 1, 3, 2])

    def mean(x: Any) -> Any:
        """The mean along keys, weighted as the values are."""
        return builder.emit(R.sum(x * weights, -1, keepdims=True))

    g, q, to_q = (by_head(x) for x in (gradient, queries, moves[0]))
    k, v, to_k, to_v = (by_head(x, shared=True) for x in (keys, values, *moves[1:]))
    factor = score_factor(call.attrs["scale"], sizes[3], wide)
    allowed = builder.emit(_allowed(call, queries, keys, starts))
    scores = builder.emit(R.matmul(q, transposed(k)) * factor)
    low = R.full_like(scores, -math.inf)
    weights: Any = R.nn.softmax(R.where(allowed, scores, low), -1)
    # A query that attends to no key gets 0.
    weights = builder.emit(R.where(allowed, weights, R.zeros_like(weights)))

    moved: Any = builder.emit(
        (R.matmul(to_q, transposed(k)) + R.matmul(q, transposed(to_k))) * factor
    )
    moved_mean = mean(moved)
    moved_weights: Any = builder.emit(weights * (moved - moved_mean))
    to_weights: Any = builder.emit(R.matmul(g, transposed(v)))
    centred: Any = builder.emit(to_weights - mean(to_weights))
    to_scores: Any = builder.emit(weights * centred * factor)
    again: Any = builder.emit(
        moved * centred - moved_mean * to_weights + R.matmul(g, transposed(to_v))
    )
    again = builder.emit(weights * (again - mean(again)) * factor)
    return [
        like(R.matmul(moved_weights, v) + R.matmul(weights, to_v), gradient),
        like(R.matmul(again, k) + R.matmul(to_scores, to_k), queries),
        like(
            R.matmul(transposed(again), q) + R.matmul(transposed(to_scores), to_q),
            keys,
            shared=True,
        ),
        like(R.matmul(transposed(moved_weights), g), values, shared=True),
    ]
