"""Recurrent layers: one matmul with all inputs, then one kernel that loops over the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypedDict

from typing_extensions import Unpack

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, Tuple, TupleGetItem
from relaxpy.ir.te.topi.recurrent import Activation, gru_kernel, like, lstm_kernel, rnn_kernel
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Size, dtype_of, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple
from relaxpy.plugins.onnx.context import Context, converter
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class BytesOf:
    """A layer whose weights are in 8 bits, by the number of a direction.

    Fields:
        product: the inputs times the weights of a direction.
        rows: the scales of the rows of its weights of the state, the sums of these without zero
            points, and the zero points; None if these are 0.
    """

    product: Callable[[Expr, int], Expr]
    rows: Callable[[int], tuple[Expr, Expr, Expr | None]]


#: The inputs, the two weights, the bias, the lengths of sequences, and the initial states.
Operands: TypeAlias = tuple[Expr, Expr, Expr, Expr | None, Expr | None, *tuple[Expr | None, ...]]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """The function that an activation's name stands for."""

    def a(default: float) -> float:
        return default if alpha is None else alpha

    def b(default: float) -> float:
        return default if beta is None else beta

    def zero(x: PrimExpr) -> PrimExpr:
        return like(0, x)

    table: dict[str, Activation] = {
        "tanh": intrin.tanh,
        "sigmoid": intrin.sigmoid,
        "relu": lambda x: ops.maximum(x, zero(x)),
        "affine": lambda x: x * like(a(1.0), x) + like(b(0.0), x),
        "leakyrelu": lambda x: tir.Select(x >= zero(x), x, x * like(a(0.01), x)),
        "thresholdedrelu": lambda x: tir.Select(x > like(a(1.0), x), x, zero(x)),
        "scaledtanh": lambda x: intrin.tanh(x * like(b(1.0), x)) * like(a(1.0), x),
        "hardsigmoid": lambda x: ops.maximum(
            ops.minimum(x * like(a(0.2), x) + like(b(0.5), x), like(1, x)), zero(x)
        ),
        "elu": lambda x: tir.Select(
            x >= zero(x), x, (intrin.exp(x) - like(1, x)) * like(a(1.0), x)
        ),
        "softsign": lambda x: x / (like(1, x) + intrin.abs(x)),
        "softplus": lambda x: intrin.log(like(1, x) + intrin.exp(x)),
    }
    if name.lower() not in table:
        raise UnsupportedError(f"the activation {name!r} is not one of {', '.join(table)}")
    return table[name.lower()]


class LayerAttributes(TypedDict, total=False):
    """The attributes that all layers have; `_options` has the defaults."""

    activation_alpha: Sequence[float] | None
    activation_beta: Sequence[float] | None
    activations: Sequence[str] | None
    clip: float | None
    direction: str
    hidden_size: int | None
    layout: int


@dataclass(frozen=True)
class _Options:
    """The attributes of a layer; `functions` are the activations of each direction."""

    functions: list[list[Activation]]
    reverse: list[bool]
    clip: float | None
    layout: int
    hidden: int | None


def _options(
    defaults: Sequence[str],
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    hidden_size: int | None = None,
) -> _Options:
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction.lower() not in reverse:
        raise UnsupportedError(f"direction {direction!r} is not one of {', '.join(reverse)}")
    names = list(activations or [*defaults] * len(reverse[direction.lower()]))
    count = len(defaults)
    if len(names) != count * len(reverse[direction.lower()]):
        raise UnsupportedError(f"{len(names)} activations do not fit the direction {direction!r}")
    # The parameters are listed for the activations that have some, or for all.
    with_alpha = [
        n for n in names if n.lower() not in ("tanh", "sigmoid", "relu", "softsign", "softplus")
    ]
    with_beta = [n for n in with_alpha if n.lower() in ("affine", "scaledtanh", "hardsigmoid")]
    left = {
        kind: (list(given or []), len(given or []) > len(takers))
        for kind, given, takers in (
            ("alpha", activation_alpha, with_alpha),
            ("beta", activation_beta, with_beta),
        )
    }

    def taken(kind: str, name: str, admitted: Sequence[str]) -> float | None:
        values, for_all = left[kind]
        if values and (for_all or name in admitted):
            return float(values.pop(0))
        return None

    functions = [
        _activation(n, taken("alpha", n, with_alpha), taken("beta", n, with_beta)) for n in names
    ]
    grouped = [functions[k : k + count] for k in range(0, len(functions), count)]
    return _Options(grouped, reverse[direction.lower()], clip, layout, hidden_size)


def part(x: Expr, direction: int) -> Expr:
    """The part of a tensor that belongs to a direction, which is its first axis."""
    return R.squeeze(R.strided_slice(x, [0], [direction], [direction + 1]), [0])


def _columns(x: Expr, begin: Size, end: Size) -> Expr:
    return R.strided_slice(x, [0], [begin], [end])


def _layer(
    cx: Context,
    operands: Operands,
    options: _Options,
    gates: int,
    kernel: Callable[..., Sequence[Expr]],
    states: int,
    linear_before_reset: bool = False,
    product: Callable[[Expr, int], Expr] | None = None,
) -> list[Expr]:
    """The outputs of a layer: `kernel` loops in one direction over precomputed input products.

    `product` is that of all inputs with the weights of a direction, if it is another one.
    """
    x, w, r, bias, lengths, *first = operands
    if options.layout:
        x = R.permute_dims(x, [1, 0, 2])
        first = [None if s is None else R.permute_dims(s, [1, 0, 2]) for s in first]
    x = cx.emit(x)
    steps, batch, width = shape_of(x, 3)
    count, hidden = len(options.reverse), options.hidden or shape_of(r, 3)[2]
    rows = simple(hidden * gates)
    w = cx.shaped(w, "W", [count, rows, width] if product is None else shape_of(w))
    r = cx.shaped(r, "R", [count, rows, hidden])
    bias = None if bias is None else cx.shaped(bias, "B", [count, simple(rows * 2)])
    names = ["initial_h", "initial_c"][: len(first)]
    first = [
        None if s is None else cx.shaped(s, name, [count, batch, hidden])
        for s, name in zip(first, names, strict=True)
    ]
    if lengths is not None:
        lengths = cx.shaped(lengths, "sequence_lens", [batch])
        lengths = cx.within(lengths, "sequence_lens", 0, steps)

    def with_weights(inputs: Expr, direction: int) -> Expr:
        return R.matmul(inputs, R.permute_dims(part(w, direction)))

    product = product or with_weights
    every, lasts = [], []
    for d, reverse in enumerate(options.reverse):
        inputs = product(x, d)
        reset_bias: Expr | None = None
        if bias is not None:
            both = cx.emit(part(bias, d))
            size = hidden * gates
            of_inputs = _columns(both, 0, size)
            of_state = _columns(both, size, size * 2)
            if linear_before_reset:
                reset_bias = _columns(of_state, hidden * 2, size)
                zero = R.zeros((hidden,), dtype_of(x))
                of_state = R.concat([_columns(of_state, 0, hidden * 2), zero], axis=0)
            inputs = inputs + (of_inputs + of_state)
        inputs = cx.emit(inputs)
        batch = shape_of(inputs)[1]  # as the kernel sees it, also where the bias decides sizes
        begin = [
            R.zeros((batch, hidden), dtype_of(x)) if s is None else part(s, d)
            for s in (*first, *[None] * states)[:states]
        ]
        if linear_before_reset and reset_bias is None:
            reset_bias = R.zeros((hidden,), dtype_of(x))
        walk = {"functions": options.functions[d], "reverse": reverse, "clip": options.clip}
        found = kernel(d, inputs, part(r, d), begin, lengths, reset_bias, **walk)
        every.append(found[0])
        lasts.append(found[1:])
    axis = 2 if options.layout else 1
    outputs = [R.permute_dims(y, [1, 0, 2]) for y in every] if options.layout else every
    finals = [[parts[k] for parts in lasts] for k in range(states)]
    return [
        _stacked(outputs, axis),
        *(_stacked(parts, 1 if options.layout else 0) for parts in finals),
    ]


def _stacked(parts: Sequence[Expr], axis: int) -> Expr:
    return R.expand_dims(parts[0], axis) if len(parts) == 1 else R.stack(Tuple(tuple(parts)), axis)


def _called(
    cx: Context, kernel: Callable[..., Any], count: int, *args: Any, **options: Any
) -> list[Expr]:
    """The `count` results of a kernel."""

    def built(*tensors: Any) -> Any:
        return kernel(*tensors, **options)

    bound = [cx.emit(a) if isinstance(a, Expr) else a for a in args]
    name = kernel.__name__.removesuffix("_kernel")
    result = cx.te(built, *bound, name=name)
    return [TupleGetItem(result, k) for k in range(count)]


def _rnn(
    cx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    **attributes: Unpack[LayerAttributes],
) -> list[Expr]:
    options = _options(["Tanh"], **attributes)

    def kernel(
        d: int, x: Expr, r: Expr, begin: list[Expr], lengths: Expr | None, _: Any, **walk: Any
    ) -> list[Expr]:
        return _called(cx, rnn_kernel, 2, x, r, begin[0], lengths, **walk)

    return _layer(cx, (X, W, R, B, sequence_lens, initial_h), options, 1, kernel, 1)


converter("RNN", ignored=["output_sequence"])(_rnn)


@converter("GRU", ignored=["output_sequence"])
def gru(
    cx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Unpack[LayerAttributes],
) -> list[Expr]:
    options = _options(["Sigmoid", "Tanh"], **attributes)

    def kernel(d: int, x: Expr, r: Expr, begin: list[Expr], *rest: Any, **walk: Any) -> list[Expr]:
        return _called(cx, gru_kernel, 2, x, r, begin[0], *rest, **walk)

    operands = X, W, R, B, sequence_lens, initial_h
    return _layer(cx, operands, options, 3, kernel, 1, bool(linear_before_reset))


@converter("LSTM", ignored=["output_sequence"])
def lstm(
    cx: Context,
    X: Expr,
    W: Expr,
    R: Expr,
    B: Expr | None = None,
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    initial_c: Expr | None = None,
    P: Expr | None = None,
    *,
    input_forget: int = 0,
    **attributes: Unpack[LayerAttributes],
) -> list[Expr]:
    operands = X, W, R, B, sequence_lens, initial_h, initial_c
    return lstm_layer(cx, operands, P, coupled=bool(input_forget), **attributes)


def lstm_layer(
    cx: Context,
    operands: Operands,
    peepholes: Expr | None,
    *,
    coupled: bool,
    bytes_of: BytesOf | None = None,
    **attributes: Unpack[LayerAttributes],
) -> list[Expr]:
    """The outputs of a layer; with `coupled`, the input gate is 1 less the forget gate."""
    options = _options(["Sigmoid", "Tanh", "Tanh"], **attributes)

    if peepholes is not None:
        sizes = [len(options.reverse), simple(shape_of(operands[2], 3)[2] * 3)]
        peepholes = cx.shaped(peepholes, "P", sizes)

    def kernel(
        d: int, x: Expr, r: Expr, begin: list[Expr], lengths: Expr | None, _: Any, **walk: Any
    ) -> list[Expr]:
        return _called(
            cx,
            lstm_kernel,
            3,
            x,
            r,
            *begin,
            lengths,
            None if peepholes is None else part(peepholes, d),
            *((None, None, None) if bytes_of is None else bytes_of.rows(d)),
            **walk,
            coupled=coupled,
        )

    product = None if bytes_of is None else bytes_of.product
    return _layer(cx, operands, options, 4, kernel, 2, product=product)
