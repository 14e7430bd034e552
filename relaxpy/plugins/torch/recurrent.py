"""Recurrent layers as operators that walk the states of one direction, and their gradients.

PyTorch's decompositions have operators for each step, and graphs that grow with the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from relaxpy.plugins.torch.backward import decomposition

Tensor: TypeAlias = Any

_LIBRARY: Final = torch.library.Library("relaxpy", "DEF")
_OPERATORS: Final = (
    "walk_lstm(Tensor inputs, Tensor weights, Tensor state, Tensor cell, Tensor? projection,"
    " bool reverse) -> (Tensor, Tensor)",
    "walk_gru(Tensor inputs, Tensor weights, Tensor state, Tensor bias, bool reverse) -> Tensor",
    "walk_rnn(Tensor inputs, Tensor weights, Tensor state, bool is_tanh, bool reverse) -> Tensor",
    "walk_back(Tensor of_states, Tensor factors, Tensor kept, Tensor weights, bool reverse)"
    " -> (Tensor, Tensor)",
    "walk_back_lstm(Tensor of_states, Tensor factors, Tensor kept, Tensor weights, Tensor of_cells,"
    " Tensor seen, Tensor? projection, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
)


def _every(inputs: Tensor, state: Tensor) -> Tensor:
    """The states of all positions, without their elements."""
    return inputs.new_empty((inputs.shape[0], *state.shape))


def _walk_lstm(inputs: Tensor, weights: Tensor, state: Tensor, cell: Tensor, *_: Any) -> Any:
    return _every(inputs, state), _every(inputs, cell)


def _walk(inputs: Tensor, weights: Tensor, state: Tensor, *_: Any) -> Tensor:
    return _every(inputs, state)


def _walk_back(of_states: Tensor, *_: Any) -> Any:
    return torch.empty_like(of_states), torch.empty_like(of_states[0])


def _walk_back_lstm(of_states: Tensor, _f: Any, _k: Any, _w: Any, cells: Tensor, *_: Any) -> Any:
    return *_walk_back(of_states), *_walk_back(cells)


_SHAPES: Final = (_walk_lstm, _walk, _walk, _walk_back, _walk_back_lstm)
for _schema, _shape in zip(_OPERATORS, _SHAPES, strict=True):
    _LIBRARY.impl(_LIBRARY.define(_schema), _shape, "Meta")

_ops: Final[Any] = torch.ops.relaxpy


def _before(state: Tensor, states: Tensor, reverse: bool) -> Tensor:
    """The state before the step of each position."""
    parts = [states[1:], state[None]] if reverse else [state[None], states[:-1]]
    return torch.cat(parts)


def _of_weights(of_gates: Tensor, before: Tensor) -> Tensor:
    return of_gates.flatten(0, 1).mT @ before.flatten(0, 1)


class _Lstm(torch.autograd.Function):  # type: ignore[misc]
    """All hidden and cell states; the gates are input, forget, cell, output."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        states, cells = _ops.walk_lstm(*args)
        *tensors, ctx.reverse = args
        ctx.save_for_backward(*tensors, states, cells)
        return states, cells

    @staticmethod
    def backward(ctx: Any, of_states: Tensor, of_cells: Tensor) -> Any:
        inputs, weights, state, cell, projection, states, cells = ctx.saved_tensors
        before, reverse = _before(state, states, ctx.reverse), ctx.reverse
        last = _before(cell, cells, reverse)
        gates = (inputs + before @ weights.mT).chunk(4, -1)
        i, f, o = (gates[k].sigmoid() for k in (0, 1, 3))
        g, seen = gates[2].tanh(), cells.tanh()
        through = o * (1 - seen * seen)
        parts = [g * i * (1 - i), last * f * (1 - f), i * (1 - g * g), seen * o * (1 - o)]
        factors = torch.cat(parts, -1)
        of_h, of_state, of_c, of_cell = _ops.walk_back_lstm(
            of_states, factors, f, weights, of_cells, through, projection, reverse
        )
        of_h = of_states + of_h
        of_u = of_h if projection is None else of_h @ projection
        of_c = of_cells + of_c + of_u * through
        of_gates = factors * torch.cat([of_c, of_c, of_c, of_u], -1)
        of_projection = None if projection is None else _of_weights(of_h, o * seen)
        of_weights = _of_weights(of_gates, before)
        return of_gates, of_weights, of_state, of_cell, of_projection, None


class _Gru(torch.autograd.Function):  # type: ignore[misc]
    """The states of all positions; the gates are reset, update, hidden."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        states = _ops.walk_gru(*args)
        *tensors, ctx.reverse = args
        ctx.save_for_backward(*tensors, states)
        return states

    @staticmethod
    def backward(ctx: Any, of_states: Tensor) -> Any:
        inputs, weights, state, bias, states = ctx.saved_tensors
        before, reverse = _before(state, states, ctx.reverse), ctx.reverse
        of_state = before @ weights.mT
        (r, z, n), (hr, hz, hn) = inputs.chunk(3, -1), of_state.chunk(3, -1)
        hn = hn + bias
        r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
        n = (n + r * hn).tanh()
        new = (1 - z) * (1 - n * n)
        parts = [new * hn * r * (1 - r), (before - n) * z * (1 - z)]
        factors = torch.cat([*parts, new * r], -1)
        of_h, first = _ops.walk_back(of_states, factors, z, weights, reverse)
        of_h = of_states + of_h
        of_gates = factors * of_h.repeat(1, 1, 3)
        of_inputs = torch.cat([of_gates[..., : -n.shape[-1]], new * of_h], -1)
        of_bias = of_gates[..., -n.shape[-1] :].sum((0, 1))
        return of_inputs, _of_weights(of_gates, before), first, of_bias, None


class _Rnn(torch.autograd.Function):  # type: ignore[misc]
    """The states of all positions of a layer without gates."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        states = _ops.walk_rnn(*args)
        *tensors, ctx.is_tanh, ctx.reverse = args
        ctx.save_for_backward(*tensors, states)
        return states

    @staticmethod
    def backward(ctx: Any, of_states: Tensor) -> Any:
        _, weights, state, states = ctx.saved_tensors
        factors = 1 - states * states if ctx.is_tanh else (states > 0).to(states.dtype)
        kept = torch.zeros_like(states)
        of_h, first = _ops.walk_back(of_states, factors, kept, weights, ctx.reverse)
        of_inputs = factors * (of_states + of_h)
        before = _before(state, states, ctx.reverse)
        return of_inputs, _of_weights(of_inputs, before), first, None, None


def _lstm(x: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool) -> Any:
    of_inputs, of_states, *rest = weights
    inputs = torch.nn.functional.linear(x, of_inputs, rest[0] + rest[1] if len(rest) > 1 else None)
    return _Lstm.apply(inputs, of_states, *first, rest[-1] if len(rest) % 2 else None, reverse)


def _gru(x: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool) -> Any:
    of_inputs, of_states, *biases = weights
    hidden = of_states.shape[1]
    bias = of_states.new_zeros(hidden) if not biases else biases[1][-hidden:]
    if biases:  # that of the products with the state in the hidden gate is apart
        both = biases[0][:-hidden] + biases[1][:-hidden]
        biases = [torch.cat([both, biases[0][-hidden:]])]
    inputs = torch.nn.functional.linear(x, of_inputs, *biases)
    return (_Gru.apply(inputs, of_states, *first, bias, reverse),)


def _rnn(is_tanh: bool) -> Callable[..., Any]:
    def walked(x: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool) -> Any:
        of_inputs, of_states, *biases = weights
        bias = biases[0] + biases[1] if biases else None
        inputs = torch.nn.functional.linear(x, of_inputs, bias)
        return (_Rnn.apply(inputs, of_states, *first, is_tanh, reverse),)

    return walked


def _layers(
    walked: Callable[..., Any],
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The hidden states of the last layer at all positions, then the last states of all layers."""
    directions = (False, True)[: 1 + both]
    each = len(params) // (layers * len(directions))
    x = x.transpose(0, 1) if batch_first else x
    torch._check(x.shape[0] > 0, lambda: "Expected sequence length to be larger than 0 in RNN")
    lasts: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        if layer and train and dropout:  # which PyTorch's decomposition leaves out
            x = torch.nn.functional.dropout(x, dropout, train)
        outputs = []
        for reverse in directions:
            number = len(lasts[0])
            weights = params[number * each : (number + 1) * each]
            found = walked(x, [state[number] for state in states], weights, reverse)
            outputs.append(found[0])
            for known, every in zip(lasts, found, strict=True):
                known.append(every[0 if reverse else -1])
        x = torch.cat(outputs, -1) if both else outputs[0]
    y = x.transpose(0, 1) if batch_first else x
    return y, *(torch.stack(last) for last in lasts)


def _form(target: Any, walked: Callable[..., Any]) -> Callable[..., Any]:
    def layers(x: Tensor, states: Any, params: Any, *options: Any, **named: Any) -> Any:
        # After the lengths of sequences, `options` begins with the parameters.
        if named or not isinstance(options[0], bool):
            return target(x, states, params, *options, **named)
        if not torch.is_autocast_enabled("cpu"):
            states = [states] if isinstance(states, torch.Tensor) else states
            return _layers(walked, x, states, params, *options)
        if target is not torch.lstm:
            return target(x, states, params, *options)
        dtype = torch.get_autocast_dtype("cpu")  # of the whole kernel of oneDNN
        states, params = ([tensor.to(dtype) for tensor in part] for part in (states, params))
        with torch.autocast("cpu", enabled=False):
            return _layers(walked, x.to(dtype), states, params, *options)

    return layers


#: For each function of PyTorch, one that has an operator for each layer and direction.
FORMS: Final[dict[Any, Callable[..., Any]]] = {
    torch.lstm: _form(torch.lstm, _lstm),
    torch.gru: _form(torch.gru, _gru),
    torch.rnn_tanh: _form(torch.rnn_tanh, _rnn(True)),
    torch.rnn_relu: _form(torch.rnn_relu, _rnn(False)),
}

for _target, _function in FORMS.items():
    decomposition(f"{_target.__name__}.input")(_function)
