"""Recurrent layers of neural networks as scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.tir import intrin, ops, reduce
from relaxpy.ir.tir.expr import IntImm, PrimExpr

__all__ = ["lstm"]

Activation: TypeAlias = Callable[[PrimExpr], PrimExpr]


def lstm(
    Xs: Tensor,  # noqa: N803
    Wi: Tensor,  # noqa: N803
    Wh: Tensor,  # noqa: N803
    Bi: Tensor | None = None,  # noqa: N803
    Bh: Tensor | None = None,  # noqa: N803
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Activation = intrin.sigmoid,
    g_act: Activation = intrin.tanh,
    h_act: Activation = intrin.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:
    """The hidden states and the cell states of a long short-term memory.

    Shapes:
        Xs             (length, batch, input)
        Wi, Wh         (4 * hidden, input), (4 * hidden, hidden or projection), by `weight_layout`
        Bi, Bh         (4 * hidden,), biases in the same order
        h_init, c_init (batch, hidden or projection), (batch, hidden): 0 by default
        proj           (projection, hidden), applied to the hidden state
        p_i, p_f, p_o  (batch, hidden), the weights by which the gates see the cell state
        result         (length, batch, hidden or projection), (length, batch, hidden)
    Errors:
        MisuseError: the layout does not list the input, forget, cell and output gates as I, F, G
            and O, a rank is not that above, or 4 does not divide the rows of Wi.
    Rule:
        Hochreiter and Schmidhuber, Neural Computation 9(8), 1997; peepholes: Gers et al., JMLR 3,
        2002; projection: Sak et al., INTERSPEECH 2014. With `reverse`, the last input comes first.
    """
    _check(Xs, Wi, Wh, weight_layout)
    length, batch, inputs = Xs.shape
    rows = Wi.shape[0]
    hidden = simplify(ops.floordiv(rows, ops.const(4, rows.dtype)))
    width = hidden if proj is None else proj.shape[0]
    count = ops.add(length, ops.const(1, length.dtype))  # a scan begins with the first state
    gate = {letter: weight_layout.index(letter) for letter in "IFGO"}

    from_input = _computed(
        (length, batch, rows),
        lambda t, b, j: _sum(inputs, "ki2h", lambda k: Xs(t, b, k) * Wi(j, k)),
        "Xi2h",
    )
    h_state = te.placeholder((count, batch, width), Xs.dtype, "h_state")
    c_state = te.placeholder((count, batch, hidden), Xs.dtype, "c_state")
    from_hidden = _computed(
        (count, batch, rows),
        lambda t, b, j: _sum(width, "kh2h", lambda k: h_state(t - 1, b, k) * Wh(j, k)),
        "s_h2h",
    )

    def summed(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        position = ops.sub(length, t) if reverse else ops.sub(t, ops.const(1, t.dtype))
        total: PrimExpr = from_input(position, b, j) + from_hidden(t, b, j)
        for bias in (Bi, Bh):
            total = total if bias is None else total + bias(j)
        return total

    gates = _computed((count, batch, rows), summed, "gates")
    shape = (count, batch, hidden)

    def gated(letter: str, peephole: Tensor | None, state: Tensor, shift: int) -> Tensor:
        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            value: PrimExpr = gates(
                t, b, ops.add(ops.mul(hidden, ops.const(gate[letter], j.dtype)), j)
            )
            if peephole is not None:
                value = value + peephole(b, j) * state(t - shift, b, j)
            return g_act(value) if letter == "G" else f_act(value)

        return _computed(shape, element, f"{letter.lower()}_gate")

    i_gate, f_gate = gated("I", p_i, c_state, 1), gated("F", p_f, c_state, 1)
    g_gate = gated("G", None, c_state, 1)
    next_c = _computed(
        shape,
        lambda t, b, j: f_gate(t, b, j) * c_state(t - 1, b, j) + i_gate(t, b, j) * g_gate(t, b, j),
        "next_c",
    )
    o_gate = gated("O", p_o, next_c, 0)
    next_h = _computed(shape, lambda t, b, j: o_gate(t, b, j) * h_act(next_c(t, b, j)), "next_h")
    if proj is not None:
        whole = next_h
        next_h = _computed(
            (count, batch, width),
            lambda t, b, j: _sum(hidden, "kh2p", lambda k: whole(t, b, k) * proj(j, k)),
            "next_h_proj",
        )

    first = [_first(Xs, h_init, width, "h_init"), _first(Xs, c_init, hidden, "c_init")]
    states: list[Tensor] = te.scan(first, [next_h, next_c], [h_state, c_state], name="lstm_scan")  # type: ignore[assignment]
    hidden_states = _without_first(states[0], length, "hidden_states")
    return hidden_states, _without_first(states[1], length, "cell_states")


def _check(
    Xs: Tensor,  # noqa: N803
    Wi: Tensor,  # noqa: N803
    Wh: Tensor,  # noqa: N803
    weight_layout: str,
) -> None:
    if sorted(weight_layout) != sorted("IFGO"):
        raise unexpected(weight_layout, "weight_layout orders the gates IFGO")
    if (Xs.ndim, Wi.ndim, Wh.ndim) != (3, 2, 2):
        shapes = ", ".join(shape_text(t.shape) for t in (Xs, Wi, Wh))
        raise MisuseError(f"Xs, Wi and Wh have ranks 3, 2 and 2, found shapes {shapes}")
    rows = Wi.shape[0]
    if isinstance(rows, IntImm) and rows.value % 4:
        raise MisuseError(f"Wi has 4 rows for each hidden unit, found {rows.value} rows")


def _computed(shape: Sequence[PrimExpr], element: Callable[..., PrimExpr], name: str) -> Tensor:
    return cast("Tensor", te.compute(shape, element, name=name))


def _sum(size: PrimExpr, name: str, term: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    axis = te.reduce_axis((0, size), name)
    return cast("PrimExpr", reduce.sum(term(axis.var), axis=axis))


def _first(inputs: Tensor, state: Tensor | None, size: PrimExpr, name: str) -> Tensor:
    """The state of shape (batch, size) before the first input; 0 without a state."""
    length, batch, _ = inputs.shape
    zero = ops.const(0, inputs.dtype)
    shape = ops.const(1, length.dtype), batch, size
    return _computed(shape, lambda _, b, j: zero if state is None else state(b, j), name)


def _without_first(states: Tensor, length: PrimExpr, name: str) -> Tensor:
    """The states after each of `length` inputs."""
    return _computed((length, *states.shape[1:]), lambda t, b, j: states(t + 1, b, j), name)
