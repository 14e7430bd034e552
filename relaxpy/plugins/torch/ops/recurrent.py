"""Recurrent layers: one matmul with all inputs, then one kernel that loops over the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr, Tuple, TupleGetItem, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.recurrent import Activation, gru_kernel, like, lstm_kernel, rnn_kernel
from relaxpy.ir.tir import intrin, ops
from relaxpy.plugins.importing.tensors import Size, dtype_of, reshaped, shape_of
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.random import native_dropout
from relaxpy.plugins.torch.registry import converter

_GATES: dict[str, tuple[Callable[..., Any], list[Activation], list[int]]] = {
    "lstm": (lstm_kernel, [intrin.sigmoid, intrin.tanh, intrin.tanh], [0, 3, 1, 2]),
    "gru": (gru_kernel, [intrin.sigmoid, intrin.tanh], [1, 0, 2]),
    "rnn_tanh": (rnn_kernel, [intrin.tanh], [0]),
    "rnn_relu": (rnn_kernel, [lambda x: ops.maximum(x, like(0, x))], [0]),
}
"""The kernel and the activations of each layer, and where its gates are among those of PyTorch."""


def _layers(
    cx: Context, name: str, x: Expr, states: Sequence[Expr], params: Sequence[Expr], *options: Any
) -> list[Expr]:
    """The hidden states of the last layer at all positions, then the last states of all layers."""
    has_biases, layers, dropout, train, both, batch_first = options
    hidden = shape_of(states[-1])[2]
    count = 4 if has_biases else 2
    each = count if shape_of(params[1])[1] == hidden else count + 1
    x = R.permute_dims(x, [1, 0, 2]) if batch_first else x
    lasts: list[list[Expr]] = [[] for _ in states]
    for layer in range(layers):
        if layer and train and dropout:  # which PyTorch's decomposition leaves out
            x, _ = native_dropout(cx, cx.emit(x), dropout, train)
        outputs = []
        for reverse in (False, True)[: 1 + both]:
            number = len(lasts[0])
            weights = params[number * each : (number + 1) * each]
            first = [R.take(state, const(number, "int64"), 0) for state in states]
            more = dict(zip(["projection"], weights[count:], strict=False))
            y, *last = _walked(cx, name, cx.emit(x), weights[:count], first, more, hidden, reverse)
            outputs.append(y)
            for known, state in zip(lasts, last, strict=True):
                known.append(state)
        x = R.concat(Tuple(tuple(outputs)), 2) if both else outputs[0]
    y = R.permute_dims(x, [1, 0, 2]) if batch_first else x
    return [y, *(R.stack(Tuple(tuple(last)), 0) for last in lasts)]


def _walked(
    cx: Context,
    name: str,
    x: Expr,
    weights: Sequence[Expr],
    first: Sequence[Expr],
    more: dict[str, Expr],
    hidden: Size,
    reverse: bool,
) -> list[Expr]:
    """The hidden states at all positions, and the last states, of one layer in one direction."""
    kernel, functions, order = _GATES[name]
    of_inputs, of_states, *biases = (_ordered(w, order, hidden) for w in weights)
    inputs = R.matmul(x, R.permute_dims(of_inputs))
    if name == "gru":  # whose hidden gate has a bias of its own
        more = {"bias": R.zeros((hidden,), dtype_of(x))}
        if biases:
            more = {"bias": R.strided_slice(biases[1], [0], [hidden * 2], [hidden * 3])}
            biases[1] = R.nn.pad(R.strided_slice(biases[1], [0], [0], [hidden * 2]), [0, hidden])
    if biases:
        inputs = R.add(inputs, R.add(*biases))

    def walk(*tensors: Any) -> Any:
        count = len(tensors) - len(more)
        options = dict(zip(more, tensors[count:], strict=True))
        return kernel(*tensors[:count], functions=functions, reverse=reverse, **options)

    operands = [cx.emit(operand) for operand in (inputs, of_states, *first, *more.values())]
    result = cx.te(walk, *operands, name=name)
    return [TupleGetItem(result, k) for k in range(1 + len(first))]


def _ordered(weights: Expr, order: Sequence[int], hidden: Size) -> Expr:
    """The rows of weights or biases with the gates reordered; a gate has `hidden` rows."""
    shape = shape_of(weights)
    gates = reshaped(weights, [len(order), hidden, *shape[1:]])
    return reshaped(R.take(gates, const(order, "int64"), 0), shape)


@converter("lstm.input")
def lstm(
    cx: Context, x: Expr, states: Sequence[Expr], params: Sequence[Expr], *options: Any
) -> list[Expr]:
    return _layers(cx, "lstm", x, states, params, *options)


def _of_one_state(name: str) -> None:
    @converter(f"{name}.input")
    def convert(
        cx: Context, x: Expr, state: Expr, params: Sequence[Expr], *options: Any
    ) -> list[Expr]:
        return _layers(cx, name, x, [state], params, *options)


for _name in ("gru", "rnn_tanh", "rnn_relu"):
    _of_one_state(_name)
