"""Operators that choose elements by their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.tir import expr as tir, ops, reduce
from relaxpy.plugins.nn.core import Tensor, emit_tensor, expr_of
from relaxpy.plugins.nn.ops.arrange import cumsum, sum
from relaxpy.plugins.nn.ops.custom import tensor_expr_op
from relaxpy.support.entry import user_facing


@user_facing
def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """For each uniform sample the element that it chooses from a row of probabilities.

    Shapes:
        prob            (rows, elements); rows sum to 1
        uniform_sample  (n, 1); between 0 and 1
        sample_indices  (n, 1), the row for each sample; without it, there are n rows
        result          (n, 1)
    """
    data, samples = expr_of(prob), expr_of(uniform_sample)
    operands = (data, samples, expr_of(_rows(prob, uniform_sample, sample_indices)))
    return emit_tensor(R.multinomial_from_uniform(*operands, dtype), name)


@user_facing
def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """For each uniform sample the element that it chooses among the most probable ones.

    These are the first in a row that together reach `top_p`, and at most `top_k`.

    Shapes:
        sorted_prob     (rows, elements), in descending order; rows sum to 1
        sorted_index    (rows, elements), what is chosen
        top_p, top_k    (rows, 1)
        uniform_sample  (n, 1); between 0 and 1
        sample_indices  (n, 1), the row for each sample; without it, there are n rows
        result          (n, 1)
    """
    sums = cumsum(sorted_prob, axis=1)
    expr_of(uniform_sample)
    rows = _rows(sorted_prob, uniform_sample, sample_indices)
    limits = [expr_of(top_p), expr_of(top_k)]
    total = tensor_expr_op(_last_sum, "get_renorm_prob", [sums, sums, *limits])
    operands = [sums, sorted_index, total, uniform_sample, rows]
    return tensor_expr_op(_choose, "get_index_from_sorted", operands)  # type: ignore[no-any-return]


@user_facing
def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """Probabilities that are 0 for all but the most probable elements, and sum to 1.

    These are the first in a sorted row that together reach `top_p`, and at most `top_k`.

    Shapes:
        prob          (rows, elements)
        sorted_prob   (rows, elements), the same in descending order
        top_p, top_k  (rows, 1)
    """
    sums = cumsum(sorted_prob, axis=1)
    limits = [expr_of(top_p), expr_of(top_k)]
    cutoff = tensor_expr_op(_last_sum, "get_renorm_cutoff", [sorted_prob, sums, *limits])
    kept = tensor_expr_op(_at_least, "filter_with_top_p_top_k", [prob, cutoff])
    return kept / sum(kept, axis=1, keepdims=True)  # type: ignore[no-any-return]


def _rows(prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None) -> Tensor:
    """The row of each sample: as many rows as samples, unless they are passed."""
    if sample_indices is not None:
        expr_of(sample_indices)
        if sample_indices.shape != uniform_sample.shape:
            raise MisuseError(
                f"sample_indices have shape {sample_indices.shape}, and uniform_sample "
                f"{uniform_sample.shape}: there is an index for each sample",
                about=sample_indices,
            )
        return sample_indices
    count = uniform_sample.shape[0]
    if not isinstance(count, int) or prob.shape[0] != count:
        raise MisuseError(
            f"there are {prob.shape[0]} rows of probabilities and {count} samples",
            hint="pass sample_indices, the row for each sample",
            about=uniform_sample,
        )
    return Tensor.from_const(np.arange(count, dtype="int64").reshape(count, 1))


def _last_sum(values: Any, sums: Any, top_p: Any, top_k: Any) -> Any:
    """In each row the value at the first element that reaches `top_p` or is the last of `top_k`."""
    rows, elements = sums.shape
    j = te.reduce_axis((0, elements), "j")

    def precedes(i: Any) -> Any:
        before = reduce.all(sums[i, j] < top_p[i, 0], j + 1 < top_k[i, 0])
        return tir.Select(before, ops.const(1, "int64"), ops.const(0, "int64"))

    count = te.compute((rows,), lambda i: reduce.sum(precedes(i), axis=j), name="count")
    return te.compute(
        (rows, 1), lambda i, _: values[i, ops.minimum(count[i], elements - 1)], name="last"
    )


def _choose(sums: Any, index: Any, total: Any, sample: Any, rows: Any) -> Any:
    """For each sample the first element at which the sum of its row exceeds its part of all."""
    elements = sums.shape[1]
    j = te.reduce_axis((0, elements), "j")

    def precedes(i: Any) -> Any:
        row = rows[i, 0]
        before = sample[i, 0] >= sums[row, j] / total[row, 0]
        return tir.Select(before, ops.const(1, "int64"), ops.const(0, "int64"))

    samples = sample.shape[0]
    count = te.compute((samples,), lambda i: reduce.sum(precedes(i), axis=j), name="count")
    return te.compute(
        (samples, 1),
        lambda i, _: index[rows[i, 0], ops.minimum(count[i], elements - 1)],
        name="chosen",
    )


def _at_least(prob: Any, cutoff: Any) -> Any:
    """The probabilities that are not below the limit of their row, and 0 for the others."""
    zero = ops.const(0, prob.dtype)
    return te.compute(
        prob.shape,
        lambda i, j: tir.Select(prob[i, j] >= cutoff[i, 0], prob[i, j], zero),
        name="filter_with_top_p_top_k",
    )
