"""The gradient of `grad.attention_var_len_backward`, composed of operators that have gradients.

Scores of all queries with all keys are computed, and those across sequences masked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr
from relaxpy.ir.relax.op.definition.gradients import require_shape
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import same
from relaxpy.ir.relax.op.nn.scaled_dot_product import as_dtype, group_size, score_factor
from relaxpy.ir.te.topi.elementwise import accumulator

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

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
