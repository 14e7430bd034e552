"""Recurrent layers: one kernel for all steps of a layer in one direction."""

from __future__ import annotations

from functools import partial

from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.recurrent import (
    Activation,
    gradient_kernel,
    gru_kernel,
    like,
    lstm_kernel,
    rnn_kernel,
)
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter


@converter("walk_lstm", namespace="relaxpy")
def walk_lstm(
    cx: Context,
    inputs: Expr,
    weights: Expr,
    state: Expr,
    cell: Expr,
    projection: Expr | None,
    reverse: bool,
) -> list[Expr]:
    functions: list[Activation] = [intrin.sigmoid, intrin.tanh, intrin.tanh]

    def lstm(x: Tensor, w: Tensor, h: Tensor, c: Tensor, *more: Tensor) -> list[Tensor]:
        return lstm_kernel(
            *(x, w, h, c),
            projection=more[0] if more else None,
            functions=functions,
            reverse=reverse,
            order="IFGO",
            every_cell=True,
        )

    operands = [inputs, weights, state, cell]
    result = cx.te(lstm, *operands, *([] if projection is None else [projection]))
    return [TupleGetItem(result, 0), TupleGetItem(result, 1)]


@converter("walk_gru", namespace="relaxpy")
def walk_gru(
    cx: Context, inputs: Expr, weights: Expr, state: Expr, bias: Expr, reverse: bool
) -> Expr:
    functions: list[Activation] = [intrin.sigmoid, intrin.tanh]

    def gru(x: Tensor, w: Tensor, h: Tensor, own: Tensor) -> Tensor:
        return gru_kernel(x, w, h, bias=own, functions=functions, reverse=reverse, order="RZ")[0]

    return cx.te(gru, inputs, weights, state, bias)


def _relu(x: PrimExpr) -> PrimExpr:
    return ops.maximum(x, like(0, x))


@converter("walk_rnn", namespace="relaxpy")
def walk_rnn(
    cx: Context, inputs: Expr, weights: Expr, state: Expr, is_tanh: bool, reverse: bool
) -> Expr:
    functions: list[Activation] = [intrin.tanh if is_tanh else _relu]

    def rnn(x: Tensor, w: Tensor, h: Tensor) -> Tensor:
        return rnn_kernel(x, w, h, functions=functions, reverse=reverse)[0]

    return cx.te(rnn, inputs, weights, state)


@converter("walk_back", namespace="relaxpy")
def walk_back(
    cx: Context, of_states: Expr, factors: Expr, kept: Expr, weights: Expr, reverse: bool
) -> list[Expr]:
    kernel = partial(gradient_kernel, reverse=reverse)
    result = cx.te(kernel, of_states, factors, kept, weights, name="gradient")
    return [TupleGetItem(result, k) for k in range(2)]


@converter("walk_back_lstm", namespace="relaxpy")
def walk_back_lstm(
    cx: Context,
    of_states: Expr,
    factors: Expr,
    kept: Expr,
    weights: Expr,
    of_cells: Expr,
    seen: Expr,
    projection: Expr | None,
    reverse: bool,
) -> list[Expr]:
    operands = [of_states, factors, kept, weights, of_cells, seen]
    kernel = partial(gradient_kernel, reverse=reverse)
    more = [] if projection is None else [projection]
    result = cx.te(kernel, *operands, *more, name="gradient")
    return [TupleGetItem(result, k) for k in range(4)]
